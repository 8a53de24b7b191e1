// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdlib.h>

#include <string_view>

namespace softverbs::fabric {

/// Returns the value of an environment variable; empty if it is not set. A set-user-ID program gets
/// no values (secure_getenv(3)).
[[nodiscard]] inline std::string_view environment_variable(const char* name) noexcept {
    const char* const value = ::secure_getenv(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
}

} // namespace softverbs::fabric
