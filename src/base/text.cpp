// SPDX-License-Identifier: BSD-3-Clause
#include "base/text.hpp"

#include <array>
#include <cstdio>

// glibc has this function since version 2.32. With an older C library, the weak reference is null.
extern "C" [[gnu::weak]] const char* strerrorname_np(int error) noexcept;

namespace rdmabuf::detail {

std::string hexadecimal(std::uintmax_t value) {
    std::array<char, 2 + 2 * sizeof(value) + 1> text{};
    std::snprintf(text.data(), text.size(), "0x%jx", value);
    return text.data();
}

std::string quote(std::string_view text) {
    constexpr std::size_t longest = 80;
    constexpr std::string_view digits = "0123456789abcdef";
    std::string quoted = "\"";
    for (const char letter : text.substr(0, longest)) {
        const auto code = static_cast<unsigned char>(letter);
        if (letter == '\r') {
            quoted += "\\r";
        } else if (letter == '\n') {
            quoted += "\\n";
        } else if (letter == '"' || letter == '\\') {
            quoted += {'\\', letter};
        } else if (code >= 0x20 && code < 0x7f) {
            quoted += letter;
        } else {
            quoted += {'\\', 'x', digits[code >> 4U], digits[code & 0xfU]};
        }
    }
    quoted += '"';
    if (text.size() > longest) {
        quoted += " and " + std::to_string(text.size() - longest) + " bytes more";
    }
    return quoted;
}

const char* errno_name(int error) noexcept {
    return &strerrorname_np != nullptr ? strerrorname_np(error) : nullptr;
}

} // namespace rdmabuf::detail
