// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

/// A range of addresses.
struct Extent {
    std::uintptr_t base = 0;
    std::size_t length = 0;

    /// Whether the @p bytes bytes at @p address lie inside; false if their end overflows.
    [[nodiscard]] bool holds(std::uintptr_t address, std::size_t bytes) const noexcept {
        const std::uintptr_t offset = address - base;
        return offset <= length && bytes <= length - offset;
    }
};

/// Returns the error of export_range() for a range that leaves its allocation: ERANGE, "2 bytes at
/// offset 4095 leave the buffer of 4096 bytes at 0x7f..".
/// @param why  appended to the text
[[nodiscard]] Error leaves(const Extent& extent, std::uintptr_t address, std::size_t length,
                           std::string_view why = {});

/// Checks a range of memory that a program adds to an exporter.
/// @param described  the memory, for the text of the error
/// @throws Error EINVAL for a length or an address of 0, and if the end of the range overflows
void check_added(std::uintptr_t address, std::size_t length, const std::string& described);

} // namespace rdmabuf::detail
