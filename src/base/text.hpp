// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rdmabuf::detail {

/// Returns @p value in hexadecimal with the prefix 0x, for example "0x7f12".
[[nodiscard]] std::string hexadecimal(std::uintmax_t value);

/// Returns the first 80 bytes of @p text in quotation marks, for an error text. Bytes that are not
/// printable ASCII are escaped.
[[nodiscard]] std::string quote(std::string_view text);

} // namespace rdmabuf::detail
