// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/transport/options.hpp>

namespace rdmabuf::transport {

namespace detail {

/// Maximum number of regions in a RemoteMemory or in a message of the wire protocol.
/// Memory has several regions only if it is longer than the device's max_mr_size, or if the program
/// has registered it so (Endpoint::use_regions()).
inline constexpr std::size_t max_chunks = 8;

/// A memory region that the peer may access by RDMA, with one rkey for each device (rail).
struct KeyedChunk {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::array<std::uint32_t, max_rails> rkeys{};
};
static_assert(sizeof(KeyedChunk) == 48 && std::is_trivially_copyable_v<KeyedChunk>);

/// The registered regions of one contiguous range of memory. The regions are sorted by address and
/// have no gaps. All devices of the owner have the same address ranges; only the rkeys differ. The
/// rkeys of a failed device are 0.
struct RemoteTable {
    std::uint16_t chunks = 0;
    std::uint16_t rails = 0;
    std::uint32_t reserved = 0;
    std::array<KeyedChunk, max_chunks> regions{};

    [[nodiscard]] std::span<const KeyedChunk> used() const noexcept {
        return {regions.data(), chunks};
    }
    /// Returns the region that contains @p address; nullptr if there is none.
    [[nodiscard]] const KeyedChunk* find(std::uint64_t address) const noexcept {
        return rdmabuf::detail::find_chunk(used(), address);
    }
    /// Returns true if no region is empty, and the regions are sorted by address, have no gaps, end
    /// at 2^64 at the latest, and have @p length bytes in total. `chunks` must be at most
    /// max_chunks.
    [[nodiscard]] bool covers(std::uint64_t length) const noexcept {
        const std::uint64_t begin = regions[0].address;
        std::uint64_t done = 0;
        for (const KeyedChunk& region : used()) {
            const std::uint64_t last = region.address + region.length - 1;
            if (region.length == 0 || region.length > length - done ||
                region.address != begin + done || region.address < begin || last < begin) {
                return false;
            }
            done += region.length;
        }
        return done == length;
    }
};

} // namespace detail

/// Describes memory of a peer for iput() and iget(). The peer creates the descriptor with
/// Memory::remote() and sends its bytes() to this side, for example as a message.
class RemoteMemory {
  public:
    /// Creates an empty descriptor, which iput() and iget() reject with EINVAL.
    RemoteMemory() noexcept = default;

    /// Returns the length of the memory in bytes.
    [[nodiscard]] std::uint64_t length() const noexcept { return length_; }
    /// Returns the access flags with which the peer has registered the memory.
    [[nodiscard]] Access access() const noexcept { return static_cast<Access>(access_); }

    /// Returns the address with which the peer has registered the memory. A program that knows the
    /// peer's address of an object in this memory subtracts this address to get the offset for
    /// iput() and iget().
    [[nodiscard]] std::uint64_t address() const noexcept { return address_; }

    /// The largest size of bytes(): that of memory with 8 regions on 8 devices.
    static constexpr std::size_t max_wire_size = 416;
    /// Returns the bytes to send to the peer: 48 bytes, plus 4 for each device, plus 48 for each
    /// region after the first. Memory has several regions only if it is longer than max_mr_size of
    /// a device, or if the program has registered it so (Endpoint::use_regions()). The bytes are
    /// the beginning of this object, so a program can also send the whole object as a message of
    /// fixed size.
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
        return std::as_bytes(std::span<const RemoteMemory, 1>(this, 1)).first(wire_size());
    }
    /// Creates a descriptor from bytes that bytes() has returned. More bytes may follow them.
    /// @return a descriptor, or an error: EMSGSIZE for too few bytes; EPROTO for bytes that are not
    ///         a descriptor, or whose regions are inconsistent; EPROTONOSUPPORT for a descriptor of
    ///         another version of this library
    [[nodiscard]] static Result<RemoteMemory> decode(std::span<const std::byte> bytes) noexcept {
        if (bytes.size() < empty_size) {
            return ErrorInfo{EMSGSIZE, "decode", "these are fewer bytes than a RemoteMemory has"};
        }
        RemoteMemory memory;
        std::memcpy(&memory, bytes.data(), std::min(bytes.size(), max_wire_size));
        if ((memory.magic_ & magic_mask) != (magic & magic_mask)) {
            return ErrorInfo{EPROTO, "decode", "these bytes are not a RemoteMemory"};
        }
        if (memory.magic_ != magic) {
            return ErrorInfo{EPROTONOSUPPORT, "decode",
                             "the RemoteMemory is of another version: use the same release "
                             "of rdmabuf everywhere"};
        }
        if (bytes.size() < memory.wire_size()) {
            return ErrorInfo{EMSGSIZE, "decode", "these are fewer bytes than a RemoteMemory has"};
        }
        std::memset(reinterpret_cast<std::byte*>(&memory) + memory.wire_size(), 0,
                    max_wire_size - memory.wire_size());
        if (!memory.consistent()) {
            return ErrorInfo{
                EPROTO, "decode",
                "the RemoteMemory was modified in transit: its regions are inconsistent"};
        }
        return memory;
    }

    // Only the transport itself calls the following functions.

    RemoteMemory(const detail::RemoteTable& table, std::uint64_t address, std::uint64_t length,
                 Access access) noexcept
        : magic_(magic),
          access_(static_cast<std::uint32_t>(access)),
          length_(length),
          address_(address),
          table_(table) {}
    [[nodiscard]] const detail::RemoteTable& table() const noexcept { return table_; }
    /// Returns the iova of the first byte: the address of this byte in work requests.
    [[nodiscard]] std::uint64_t iova() const noexcept { return table_.regions[0].address; }

  private:
    static constexpr std::uint32_t magic = 0x334d4452; // "RDM3"
    /// The bits of `magic` that are the same in all versions. The other bits identify the version.
    static constexpr std::uint32_t magic_mask = 0xffffff;
    /// The wire size of a RemoteMemory without regions: the number of bytes before the first
    /// region.
    static constexpr std::size_t empty_size = max_wire_size - sizeof(detail::RemoteTable::regions);

    [[nodiscard]] std::size_t wire_size() const noexcept {
        const std::size_t chunks = std::min<std::size_t>(table_.chunks, detail::max_chunks);
        const std::size_t rails = std::min<std::size_t>(table_.rails, max_rails);
        // The unused rkeys at the end of the last region are not sent.
        return chunks == 0 ? empty_size
                           : empty_size + chunks * sizeof(detail::KeyedChunk) -
                                 (max_rails - rails) * sizeof(std::uint32_t);
    }

    [[nodiscard]] bool consistent() const noexcept {
        return table_.chunks != 0 && table_.chunks <= detail::max_chunks && table_.rails != 0 &&
               table_.rails <= max_rails && table_.covers(length_);
    }

    std::uint32_t magic_ = 0;
    std::uint32_t access_ = 0;
    std::uint64_t length_ = 0;
    std::uint64_t address_ = 0;
    detail::RemoteTable table_{};
};

static_assert(sizeof(RemoteMemory) == RemoteMemory::max_wire_size);
static_assert(std::is_trivially_copyable_v<RemoteMemory>);

} // namespace rdmabuf::transport
