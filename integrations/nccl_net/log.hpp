// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cerrno>
#include <exception>
#include <string>

#include <rdmabuf/error.hpp>

#include "nccl_net_abi.hpp"

/// Functions that write messages to NCCL's log. With NCCL_DEBUG=WARN, NCCL prints only the
/// warnings; with NCCL_DEBUG=INFO, also the messages of info(). The functions are thread safe.
namespace nccl_net::log {

/// NCCL's logger. Messages before init() has set it are discarded.
inline std::atomic<abi::Logger> logger{nullptr};

inline void say(abi::LogLevel level, unsigned long subsystems, const char* function,
                const std::string& text) noexcept {
    if (const abi::Logger current = logger.load(std::memory_order_acquire); current != nullptr) {
        current(level, subsystems, function, 0, "NET/rdmabuf : %s", text.c_str());
    }
}
/// Logs the reason of an error. @param function  the function that failed
inline void warn(const char* function, const std::string& text) noexcept {
    say(abi::LogLevel::warn, abi::log_all, function, text);
}
inline void info(const char* function, const std::string& text) noexcept {
    say(abi::LogLevel::info, abi::log_init | abi::log_net, function, text);
}

/// Converts an errno value to a result for NCCL: invalid_usage for an error of the program,
/// remote_error if the peer has ended or does not respond, otherwise system_error.
[[nodiscard]] inline abi::Result result_of(int error) noexcept {
    switch (error) {
        case ERANGE: // An address outside the registered memory.
        case EINVAL:
            return abi::Result::invalid_usage;
        case ECONNREFUSED:
        case ECONNRESET:
        case EHOSTUNREACH:
        case ENETUNREACH:
        case ETIMEDOUT:
            return abi::Result::remote_error;
        default:
            return abi::Result::system_error;
    }
}
/// Logs a warning that @p function has failed on @p device. @return the result for NCCL
inline abi::Result failed(const char* function, const std::string& device,
                          const rdmabuf::ErrorInfo& failure) {
    warn(function, device + ": " + failure.message() + " (" + failure.code().message() + ")");
    return result_of(failure.error());
}

} // namespace nccl_net::log

namespace nccl_net {

/// Calls @p function and returns its result. NCCL cannot catch C++ exceptions. Therefore an
/// exception is logged as a warning, and the result is system_error.
template <class Function>
abi::Result guarded(const char* name, const Function& function) noexcept {
    try {
        return function();
    } catch (const std::exception& error) {
        log::warn(name, error.what());
        return abi::Result::system_error;
    }
}

} // namespace nccl_net
