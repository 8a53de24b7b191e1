// SPDX-License-Identifier: BSD-3-Clause
#include "format.hpp"

#include <array>
#include <span>

#include <fmt/format.h>

namespace rdmabuf::tools {

namespace {

// Formats a number with three significant digits, because the measurements are not exact to more
// digits.
std::string three_digits(double value, const char* unit) {
    int decimals = 2;
    if (value >= 99.95) {
        decimals = 0;
    } else if (value >= 9.995) {
        decimals = 1;
    }
    return fmt::format("{:.{}f} {}", value, decimals, unit);
}

/// Divides @p value by 1000 until it is below 1000 or the last unit is reached.
std::string scaled(double value, std::span<const char* const> units) {
    std::size_t unit = 0;
    while (value >= 999.5 && unit + 1 < units.size()) {
        value /= 1000;
        ++unit;
    }
    return three_digits(value, units[unit]);
}

} // namespace

std::string format_size(std::uint64_t bytes) {
    constexpr std::array units{"bytes", "KiB", "MiB", "GiB"};
    std::size_t unit = 0;
    while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < units.size()) {
        bytes /= 1024;
        ++unit;
    }
    return fmt::format("{} {}", bytes, units[unit]);
}

std::string format_usec(double usec) {
    return scaled(usec * 1e3, std::array{"ns", "us", "ms", "s"});
}

std::string format_bandwidth(double bytes_per_second) {
    return scaled(bytes_per_second, std::array{"B/s", "kB/s", "MB/s", "GB/s"});
}

std::string format_rate(double messages_per_second) {
    return scaled(messages_per_second, std::array{"/s", "k/s", "M/s", "G/s"});
}

} // namespace rdmabuf::tools
