// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string_view>

namespace examples {

/// A value and what the command line calls it.
template <class T>
struct Named {
    std::string_view name; // a literal
    T value;
};

template <class T>
[[nodiscard]] constexpr const char* name_of(T value, std::span<const Named<T>> names) noexcept {
    for (const Named<T>& named : names) {
        if (named.value == value) {
            return named.name.data();
        }
    }
    return "unknown";
}

} // namespace examples
