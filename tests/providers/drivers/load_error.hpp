// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <span>

#include <rdmabuf/error.hpp>

namespace rdmabuf::testing {

/// Loads the driver of an exporter. @return the error, none if the driver has all functions
template <class Driver>
std::optional<ErrorInfo> load_error(std::span<const char* const> names) {
    const auto loaded = Driver::load(names);
    if (!loaded) {
        return loaded.error_info();
    }
    return loaded->lacking();
}

} // namespace rdmabuf::testing
