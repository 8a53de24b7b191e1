// SPDX-License-Identifier: BSD-3-Clause
#include "log.hpp"

#include <atomic>
#include <cerrno>

namespace nccl_net::log {
namespace {

std::atomic<abi::Logger> current{nullptr};

void say(abi::LogLevel level, unsigned long subsystems, const char* function,
         const std::string& text) noexcept {
    if (const abi::Logger logger = current.load(std::memory_order_acquire); logger != nullptr) {
        logger(level, subsystems, function, 0, "NET/rdmabuf : %s", text.c_str());
    }
}

} // namespace

void set_logger(abi::Logger logger) noexcept {
    current.store(logger, std::memory_order_release);
}

void warn(const char* function, const std::string& text) noexcept {
    say(abi::LogLevel::warn, abi::log_all, function, text);
}

void info(const char* function, const std::string& text) noexcept {
    say(abi::LogLevel::info, abi::log_init | abi::log_net, function, text);
}

abi::Result failed(const char* function, const std::string& device,
                   const rdmabuf::ErrorInfo& failure) {
    warn(function, device + ": " + failure.message() + " (" + failure.code().message() + ")");
    return result_of(failure.error());
}

abi::Result result_of(int error) noexcept {
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

} // namespace nccl_net::log
