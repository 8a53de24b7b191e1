// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdlib.h>

#include <string_view>

namespace softverbs::fabric {

/// Returns the value of the environment variable @p name. Returns an empty string if the variable
/// is not set, or if the program is a set-user-ID program (secure_getenv(3)).
[[nodiscard]] inline std::string_view environment_variable(const char* name) noexcept {
    const char* const value = ::secure_getenv(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
}

} // namespace softverbs::fabric
