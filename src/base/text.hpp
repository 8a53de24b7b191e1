// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rdmabuf::detail {

/// Returns @p value in hexadecimal with the prefix 0x, for example "0x7f12".
[[nodiscard]] std::string hexadecimal(std::uintmax_t value);

/// Returns the first 80 bytes of @p text in quotation marks, for an error text. Quotation marks,
/// backslashes and bytes that are not printable ASCII are escaped. If @p text is longer, the number
/// of the other bytes follows.
[[nodiscard]] std::string quote(std::string_view text);

/// Returns the name of an errno value, for example "ENOMEM". Returns nullptr for a value without a
/// name, and for all values if the C library has no strerrorname_np(3), for example glibc before
/// 2.32.
[[nodiscard]] const char* errno_name(int error) noexcept;

} // namespace rdmabuf::detail
