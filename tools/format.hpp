// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace rdmabuf::tools {

/// "1 MiB", "4 KiB", "1000 bytes": the largest unit that divides the number.
[[nodiscard]] std::string format_size(std::uint64_t bytes);

/// A time in microseconds with three digits: "812 ns", "3.42 us", "1.07 ms", "2.50 s".
[[nodiscard]] std::string format_usec(double usec);

/// Bandwidth with three digits: "31.2 kB/s", "812 MB/s", "12.4 GB/s"; powers of 1000.
[[nodiscard]] std::string format_bandwidth(double bytes_per_second);

/// Message rate with three digits: "812 /s", "31.2 k/s", "1.42 M/s"; powers of 1000.
[[nodiscard]] std::string format_rate(double messages_per_second);

} // namespace rdmabuf::tools
