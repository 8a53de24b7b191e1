// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/remote_region.hpp>
#include <rdmabuf/result.hpp>

namespace rdmabuf {

namespace detail {
/// Returns the chunk that has the byte at @p address, nullptr if there is none. The chunks are in
/// order and without gaps.
/// @tparam Chunk  has `address` and `length`
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

/// Memory of a peer that is registered in chunks, each with its own rkey, one behind the other
/// without gaps. ChunkedRegion::remote() makes one, and it travels as bytes; memory in one region
/// is one chunk.
class RDMABUF_EXPORT RemoteChunks {
  public:
    RemoteChunks() = default;
    /// One chunk.
    /* implicit */ RemoteChunks(const RemoteRegion& region);
    /// @throws Error EINVAL for a chunk of 0 bytes, one that does not begin where the one before
    ///         ends, or an end beyond 64 bits; the hint has the numbers.
    explicit RemoteChunks(std::vector<RemoteRegion> chunks);

    [[nodiscard]] std::span<const RemoteRegion> chunks() const noexcept { return chunks_; }
    /// The first byte as the peer's NIC counts; 0 when there are no chunks.
    [[nodiscard]] std::uint64_t address() const noexcept {
        return chunks_.empty() ? 0 : chunks_.front().address;
    }
    /// Of all, in bytes.
    [[nodiscard]] std::uint64_t length() const noexcept {
        return chunks_.empty() ? 0 : chunks_.back().address + chunks_.back().length - address();
    }
    /// The chunk that has the byte at @p address; nullptr outside. O(log n).
    [[nodiscard]] const RemoteRegion* find(std::uint64_t address) const noexcept;

    /// The wire form: little-endian, versioned, 24 bytes and 12 for each chunk.
    [[nodiscard]] std::vector<std::byte> encode() const;
    /// Reads a wire form. Any bytes give chunks or an error: EMSGSIZE for another size than the
    /// number of chunks asks for, EPROTO for bytes that are no chunks, EPROTONOSUPPORT for another
    /// version, ENOMEM.
    [[nodiscard]] static Result<RemoteChunks> decode(std::span<const std::byte> bytes) noexcept;

    friend bool operator==(const RemoteChunks&, const RemoteChunks&) = default;

  private:
    std::vector<RemoteRegion> chunks_;
};

} // namespace rdmabuf
