// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

/// Addresses and their number.
struct Extent {
    std::uintptr_t base = 0;
    std::size_t length = 0;

    /// Whether @p bytes from @p address on lie inside. Nothing overflows.
    [[nodiscard]] bool holds(std::uintptr_t address, std::size_t bytes) const noexcept {
        const std::uintptr_t offset = address - base;
        return offset <= length && bytes <= length - offset;
    }
};

/// What export_range() throws of a range that an allocation does not hold: ERANGE, "2 bytes at
/// offset 4095 leave the buffer of 4096 bytes at 0x7f..". @param why  more of it
[[nodiscard]] Error leaves(const Extent& extent, std::uintptr_t address, std::size_t length,
                           std::string_view why = {});

} // namespace rdmabuf::detail
