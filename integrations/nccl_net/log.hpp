// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <string>

#include <rdmabuf/result.hpp>

#include "nccl_net_abi.hpp"

/// Functions that write messages of the plugin to NCCL's log, which NCCL_DEBUG=WARN or INFO
/// enables. The functions are thread safe.
namespace nccl_net::log {

/// Sets NCCL's logger. Messages before the first call are discarded.
void set_logger(abi::Logger logger) noexcept;

/// Logs the reason of an error at NCCL's level WARN. @param function  the function that failed
void warn(const char* function, const std::string& text) noexcept;
/// Logs a message for diagnosis at NCCL's level INFO.
void info(const char* function, const std::string& text) noexcept;

/// Logs an error of a device as a warning, with its text and errno. @return system_error
abi::Result failed(const char* function, const std::string& device,
                   const rdmabuf::ErrorInfo& failure);

} // namespace nccl_net::log

namespace nccl_net {

/// Calls @p function. NCCL cannot catch C++ exceptions: an exception is logged as a warning, and
/// the result is system_error.
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
