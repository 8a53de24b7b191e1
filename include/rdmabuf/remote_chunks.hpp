// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/result.hpp>

namespace rdmabuf {

namespace detail {
/// Returns the chunk that contains the byte at @p address; nullptr if no chunk contains this byte.
/// The chunks must be in ascending order and without gaps.
/// @tparam Chunk  a struct with the members `address` and `length`
template <class Chunk>
[[nodiscard]] const Chunk* find_chunk(std::span<const Chunk> chunks,
                                      std::uint64_t address) noexcept {
    const auto next = std::upper_bound(
        chunks.begin(), chunks.end(), address,
        [](std::uint64_t wanted, const Chunk& chunk) { return wanted < chunk.address; });
    if (next == chunks.begin()) {
        return nullptr;
    }
    const Chunk& chunk = *(next - 1);
    return address - chunk.address < chunk.length ? &chunk : nullptr;
}
} // namespace detail

/// Memory of a peer that is registered in chunks. Each chunk has its own rkey, and begins where the
/// previous chunk ends. Memory that is registered as one region is one chunk. The peer creates the
/// object with ChunkedRegion::remote(), and sends the result of encode().
class RDMABUF_EXPORT RemoteChunks {
  public:
    RemoteChunks() = default;
    /// Creates an object with one chunk.
    /// @throws Error EINVAL if the region has 0 bytes, or ends above 2^64 - 1
    /* implicit */ RemoteChunks(const RemoteRegion& region);
    /// Creates an object with the chunks of @p chunks.
    /// @throws Error EINVAL if a chunk has 0 bytes, does not begin where the previous chunk ends,
    ///         or ends above 2^64 - 1; Error::hint() describes the chunk
    explicit RemoteChunks(std::vector<RemoteRegion> chunks);

    [[nodiscard]] std::span<const RemoteRegion> chunks() const noexcept { return chunks_; }
    /// Returns the address of the first byte, which is the iova of the peer's first chunk. Returns
    /// 0 if there are no chunks.
    [[nodiscard]] std::uint64_t address() const noexcept {
        return chunks_.empty() ? 0 : chunks_.front().address;
    }
    /// Returns the total length of all chunks in bytes.
    [[nodiscard]] std::uint64_t length() const noexcept {
        return chunks_.empty() ? 0 : chunks_.back().address + chunks_.back().length - address();
    }
    /// Returns the chunk that contains the byte at @p address; nullptr if no chunk contains this
    /// byte. The search takes O(log n).
    [[nodiscard]] const RemoteRegion* find(std::uint64_t address) const noexcept;

    /// Returns the chunks in the wire format, which is little-endian and contains a version number.
    /// The size is 24 bytes, plus 12 bytes for each chunk.
    [[nodiscard]] std::vector<std::byte> encode() const;
    /// Decodes chunks from the wire format. The bytes can come from an untrusted peer.
    /// @return the chunks, or an error: EMSGSIZE if the size does not match the number of chunks,
    ///         EPROTO if the bytes are not valid chunks, EPROTONOSUPPORT if the version is not
    ///         supported, ENOMEM if no memory is left
    [[nodiscard]] static Result<RemoteChunks> decode(std::span<const std::byte> bytes) noexcept;

    friend bool operator==(const RemoteChunks&, const RemoteChunks&) = default;

  private:
    std::vector<RemoteRegion> chunks_;
};

} // namespace rdmabuf
