// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rdmabuf/transport/detail/request_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>
#include <rdmabuf/transport/memory.hpp>
#include <rdmabuf/transport/remote_memory.hpp>

namespace rdmabuf::transport::detail {

/// The descriptions of memory regions (address, length and remote keys) at the end of a protocol
/// message.
struct ChunkTable : RemoteTable {
    /// The total number of bytes of the regions.
    std::uint64_t length = 0;

    /// Describes @p wanted bytes of a buffer, from byte @p begin of the buffer. If this needs more
    /// than max_chunks regions, the table describes only the first bytes; see `length`.
    static ChunkTable describe(const BufferRef& buffer, std::uint64_t begin,
                               std::uint64_t wanted) noexcept {
        ChunkTable result;
        if (wanted > 0) { // A buffer of 0 bytes may have no memory.
            result.length =
                Memory::fill(*buffer.memory, result, buffer.device_address() + begin, wanted);
        }
        return result;
    }
    /// Decodes the regions that follow the body of a message, and stores them in @p table.
    /// @param rails   the number of devices of the channel
    /// @param length  the total number of bytes that the regions must have; 0: there is no region
    /// @return false if the regions are invalid
    [[nodiscard]] static bool decode(std::span<const std::byte> bytes, std::uint16_t count,
                                     std::size_t rails, std::uint64_t length,
                                     RemoteTable& table) noexcept {
        if (count > max_chunks || bytes.size() != count * sizeof(KeyedChunk)) {
            return false;
        }
        table.chunks = count;
        table.rails = static_cast<std::uint16_t>(rails);
        std::memcpy(table.regions.data(), bytes.data(), bytes.size());
        return table.covers(length);
    }
};

/// Copies the first bytes of a received message to @p body.
/// @return false if the message is shorter than @p body
template <class Body>
[[nodiscard]] bool read_body(std::span<const std::byte> bytes, Body& body) noexcept {
    if (bytes.size() < sizeof body) {
        return false;
    }
    std::memcpy(&body, bytes.data(), sizeof body);
    return true;
}

} // namespace rdmabuf::transport::detail
