// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace rdmabuf::tools {

/// Formats a size in the largest unit that divides it: "1 MiB", "4 KiB", "1000 bytes".
[[nodiscard]] std::string format_size(std::uint64_t bytes);

/// Formats a time, given in microseconds, with three digits: "812 ns", "3.42 us", "1.07 ms", "2.50
/// s".
[[nodiscard]] std::string format_usec(double usec);

/// Formats a bandwidth with three digits, in powers of 1000: "31.2 kB/s", "812 MB/s", "12.4 GB/s".
[[nodiscard]] std::string format_bandwidth(double bytes_per_second);

/// Formats a message rate with three digits, in powers of 1000: "812 /s", "31.2 k/s", "1.42 M/s".
[[nodiscard]] std::string format_rate(double messages_per_second);

} // namespace rdmabuf::tools
