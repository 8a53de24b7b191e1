// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmabuf::transport::detail {

/// Returns the FNV-1a hash of @p bytes, which detects that bytes were modified by accident.
[[nodiscard]] constexpr std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
    std::uint64_t sum = 0xcbf29ce484222325;
    for (const std::byte byte : bytes) {
        sum = (sum ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
    }
    return sum;
}

} // namespace rdmabuf::transport::detail
