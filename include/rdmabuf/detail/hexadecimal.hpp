// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace rdmabuf::detail {

/// "0x7f12": addresses and flags in error texts.
[[nodiscard]] inline std::string hexadecimal(std::uintmax_t value) {
    char text[2 + 2 * sizeof(value) + 1];
    std::snprintf(text, sizeof(text), "0x%jx", value);
    return text;
}

} // namespace rdmabuf::detail
