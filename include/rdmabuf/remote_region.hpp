// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/result.hpp>

namespace rdmabuf {

/// Where a one-sided operation goes: all that the NIC needs to know.
struct RemoteAddress {
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
};

/// Memory of a peer that one-sided operations may reach. The peer's DmaBufMR, MemoryRegion or
/// DeviceMemoryMR makes one with remote(), and it travels as bytes.
struct RDMABUF_EXPORT RemoteRegion {
    /// The first byte as the peer's NIC counts: the iova of the peer's registration.
    std::uint64_t address = 0;
    /// In bytes.
    std::uint64_t length = 0;
    std::uint32_t rkey = 0;

    /// The part of @p count bytes that begins at @p offset.
    /// @throws Error ERANGE when it does not lie inside; the hint has the numbers.
    [[nodiscard]] RemoteRegion slice(std::uint64_t offset, std::uint64_t count) const;

    /// The address @p offset bytes in, unchecked: the peer's NIC checks.
    [[nodiscard]] constexpr RemoteAddress at(std::uint64_t offset) const noexcept {
        return {address + offset, rkey};
    }
    /* implicit */ constexpr operator RemoteAddress() const noexcept { return {address, rkey}; }

    /// Bytes of the wire form.
    static constexpr std::size_t wire_size = 28;
    /// The wire form: little-endian, versioned, of fixed size.
    [[nodiscard]] std::array<std::byte, wire_size> encode() const noexcept;
    /// Reads a wire form. Any bytes give a region or an error: EMSGSIZE for another size, EPROTO
    /// for bytes that are no region, EPROTONOSUPPORT for another version.
    [[nodiscard]] static Result<RemoteRegion> decode(std::span<const std::byte> bytes) noexcept;

    friend bool operator==(const RemoteRegion&, const RemoteRegion&) noexcept = default;
};

} // namespace rdmabuf
