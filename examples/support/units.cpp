// SPDX-License-Identifier: BSD-3-Clause
#include "units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

namespace examples {

namespace {

struct Unit {
    std::string_view letter;
    unsigned shift;
    const char* name;
};
constexpr std::array<Unit, 4> units{{
    {"", 0, "bytes"},
    {"K", 10, "KiB"},
    {"M", 20, "MiB"},
    {"G", 30, "GiB"},
}};

std::optional<unsigned> shift_of(std::string_view suffix) noexcept {
    if (suffix == "k") {
        return 10;
    }
    for (const Unit& unit : units) {
        if (suffix == unit.letter || (unit.shift != 0 && suffix == unit.name)) {
            return unit.shift;
        }
    }
    return std::nullopt;
}

// Three significant digits are what a reader compares, and more than a measurement has.
std::string three_digits(double value, const char* unit) {
    int decimals = 2;
    if (value >= 99.95) {
        decimals = 0;
    } else if (value >= 9.995) {
        decimals = 1;
    }
    std::array<char, 64> text{};
    const int length = std::snprintf(text.data(), text.size(), "%.*f %s", decimals, value, unit);
    return {text.data(), static_cast<std::size_t>(length)};
}

} // namespace

std::optional<std::uint64_t> parse_size(std::string_view text) noexcept {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number == 0) {
        return std::nullopt;
    }
    const auto shift = shift_of(text.substr(static_cast<std::size_t>(end - text.data())));
    if (!shift || number > std::numeric_limits<std::uint64_t>::max() >> *shift) {
        return std::nullopt;
    }
    return number << *shift;
}

std::string format_size(std::uint64_t bytes) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < units.size(); ++i) {
        if (bytes != 0 && bytes % (std::uint64_t{1} << units[i].shift) == 0) {
            best = i;
        }
    }
    return std::to_string(bytes >> units[best].shift) + ' ' + units[best].name;
}

std::string format_usec(double usec) {
    if (usec < 1) {
        return three_digits(usec * 1e3, "ns");
    }
    if (usec < 1e3) {
        return three_digits(usec, "us");
    }
    return usec < 1e6 ? three_digits(usec / 1e3, "ms") : three_digits(usec / 1e6, "s");
}

std::string format_bandwidth(double megabytes_per_second) {
    if (megabytes_per_second < 1) {
        return three_digits(megabytes_per_second * 1e3, "kB/s");
    }
    return megabytes_per_second < 1e3 ? three_digits(megabytes_per_second, "MB/s")
                                      : three_digits(megabytes_per_second / 1e3, "GB/s");
}

} // namespace examples
