// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace softverbs {

/// Removes the part of @p text up to the first @p separator, and returns this part without the
/// separator. If there is no separator, removes and returns the whole text.
inline std::string_view take_until(std::string_view& text, char separator) {
    const std::size_t end = text.find(separator);
    const std::string_view taken = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    return taken;
}

/// Parses a decimal number. Returns nullopt if the text contains anything else, or on overflow.
template <class Number = unsigned>
std::optional<Number> parse_number(std::string_view text) {
    Number number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return number;
}

/// Parses a time such as "20ms". Returns the number of milliseconds, or nullopt if the text is
/// invalid.
inline std::optional<unsigned> parse_milliseconds(std::string_view text) {
    constexpr std::string_view unit = "ms";
    if (!text.ends_with(unit)) {
        return std::nullopt;
    }
    text.remove_suffix(unit.size());
    return parse_number(text);
}

} // namespace softverbs
