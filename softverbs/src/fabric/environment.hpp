// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdlib.h>

#include <string_view>

namespace softverbs::fabric {

/// The value of a variable of the environment; empty when it is not set. A program that runs with
/// more privileges than its user does not see the variables that its user has set.
[[nodiscard]] inline std::string_view environment_variable(const char* name) noexcept {
    const char* const value = ::secure_getenv(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
}

} // namespace softverbs::fabric
