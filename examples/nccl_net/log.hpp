// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <string>

#include <rdmabuf/result.hpp>

#include "nccl_net_abi.hpp"

/// What the plugin says goes to NCCL's log (NCCL_DEBUG=WARN, INFO). Thread safe.
namespace nccl_net::log {

/// Nothing is said before.
void set_logger(abi::Logger logger) noexcept;

/// Why something failed.
void warn(const char* function, const std::string& text) noexcept;
/// What somebody who looks for a reason should know.
void info(const char* function, const std::string& text) noexcept;

/// Warns of what a device could not do. @return what NCCL is told
abi::Result failed(const char* function, const std::string& device,
                   const rdmabuf::ErrorInfo& failure);

} // namespace nccl_net::log

namespace nccl_net {

/// NCCL knows no exceptions: what @p function throws becomes a warning and a result.
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
