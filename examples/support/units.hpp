// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace examples {

/// Bytes from "8", "64K", "1M" or "2G" (also "64k", "64KiB"), powers of 1024. Nothing for anything
/// else, for 0 and for more than 2^64 - 1.
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text) noexcept;

/// "1 MiB", "4 KiB", "1000 bytes": the largest unit that divides the number.
[[nodiscard]] std::string format_size(std::uint64_t bytes);

/// Microseconds in a unit that people read: "812 ns", "3.42 us", "1.07 ms", "2.5 s".
[[nodiscard]] std::string format_usec(double usec);

/// Bandwidth: "31.2 kB/s", "812 MB/s", "12.4 GB/s"; powers of 1000.
[[nodiscard]] std::string format_bandwidth(double megabytes_per_second);

} // namespace examples
