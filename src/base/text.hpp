// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rdmabuf::detail {

/// Returns @p value as error texts write addresses and flags: "0x7f12".
[[nodiscard]] std::string hexadecimal(std::uintmax_t value);

/// Returns @p text in quotation marks for an error text: bytes that do not print are escaped, and
/// text of more than 80 bytes is cut.
[[nodiscard]] std::string quote(std::string_view text);

} // namespace rdmabuf::detail
