// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <utility>
#include <variant>

#include <rdmabuf/availability.hpp>

namespace rdmabuf::detail {

/// Why a device cannot be used: what availability() answers, and what allocate() throws.
struct Refusal {
    int error = 0;
    /// The C function that failed, or that would have; a string literal.
    const char* function = "";
    Availability why;

    [[noreturn]] void raise() const;
};

/// What was asked for, or why it cannot be had.
template <class T>
using OrRefusal = std::variant<T, Refusal>;

/// What was asked for. @throws Error the refusal
template <class T>
const T& value_or_raise(const OrRefusal<T>& result) {
    if (const auto* refusal = std::get_if<Refusal>(&result)) {
        refusal->raise();
    }
    return std::get<T>(result);
}
template <class T>
T value_or_raise(OrRefusal<T>&& result) {
    static_cast<void>(value_or_raise(result));
    return std::get<T>(std::move(result));
}

/// "reason; remedy", of an unavailable thing.
[[nodiscard]] std::string explain(const Availability& why);

} // namespace rdmabuf::detail
