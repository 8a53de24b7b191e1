// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/result.hpp>

namespace rdmabuf {

/// The target of a one-sided operation: an address in the memory of a peer, and the rkey for it.
struct RemoteAddress {
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
};

/// A range of a peer's memory for one-sided operations. The peer creates the object with remote()
/// of its DmaBufMR, MemoryRegion or DeviceMemoryMR, and sends the result of encode().
struct RDMABUF_EXPORT RemoteRegion {
    /// The address of the first byte: the iova of the peer's registration.
    std::uint64_t address = 0;
    /// The length of the range in bytes.
    std::uint64_t length = 0;
    std::uint32_t rkey = 0;

    /// Returns the part of the region with @p count bytes at @p offset; both parameters are in
    /// bytes.
    /// @throws Error ERANGE if the part is not inside the region; Error::hint() contains the
    ///         offset, the count and the length of the region
    [[nodiscard]] RemoteRegion slice(std::uint64_t offset, std::uint64_t count) const;

    /// Returns the address of the byte at @p offset. This function does not check the offset,
    /// because the peer's NIC checks the address.
    [[nodiscard]] constexpr RemoteAddress at(std::uint64_t offset) const noexcept {
        return {address + offset, rkey};
    }
    /* implicit */ constexpr operator RemoteAddress() const noexcept { return {address, rkey}; }

    /// The size of the wire format in bytes.
    static constexpr std::size_t wire_size = 28;
    /// Returns the region in the wire format, which is little-endian and contains a version number.
    [[nodiscard]] std::array<std::byte, wire_size> encode() const noexcept;
    /// Decodes a region from the wire format. The bytes can come from an untrusted peer.
    /// @return the region, or an error: EMSGSIZE if the size is not wire_size, EPROTO if the bytes
    ///         are not a valid region, EPROTONOSUPPORT if the version is not supported
    [[nodiscard]] static Result<RemoteRegion> decode(std::span<const std::byte> bytes) noexcept;

    friend bool operator==(const RemoteRegion&, const RemoteRegion&) noexcept = default;
};

} // namespace rdmabuf
