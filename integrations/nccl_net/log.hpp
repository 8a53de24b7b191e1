// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <string>

#include <rdmabuf/error.hpp>

#include "nccl_net_abi.hpp"

/// Functions that write messages to NCCL's log. With NCCL_DEBUG=WARN, NCCL prints only the
/// warnings; with NCCL_DEBUG=INFO, also the messages of info(). The functions are thread safe.
namespace nccl_net::log {

/// Sets NCCL's logger. Messages before the first call are discarded.
void set_logger(abi::Logger logger) noexcept;

/// Logs the reason of an error at NCCL's level WARN. @param function  the function that failed
void warn(const char* function, const std::string& text) noexcept;
/// Logs a message for diagnosis at NCCL's level INFO.
void info(const char* function, const std::string& text) noexcept;

/// Logs a warning that @p function has failed on @p device, with the text and the errno value of
/// the error. @return the result for NCCL; see result_of()
abi::Result failed(const char* function, const std::string& device,
                   const rdmabuf::ErrorInfo& failure);
/// Converts an errno value to a result for NCCL: invalid_usage for an error of the program,
/// remote_error if the peer has ended or does not respond, otherwise system_error.
[[nodiscard]] abi::Result result_of(int error) noexcept;

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
