// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/registered_memory.hpp>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/remote_chunks.hpp>
#include <rdmabuf/transfer_splitter.hpp>

namespace rdmabuf {

struct ChunkedRegionOptions {
    RegistrationOptions registration = {};
    /// The maximum size of a chunk in bytes, a multiple of the page size. 0 for the smallest limit
    /// of the devices (DeviceAttributes::max_mr_size). If a device then refuses a dma-buf because
    /// of its length, smaller chunks are tried, down to 64 MiB.
    std::size_t chunk_size = 0;
};

/// Memory that is registered in chunks, because a device does not register as much at once, on one
/// protection domain or on several. The chunks lie one behind the other and cover every byte; all
/// but the first begin at a page boundary. All devices have the same chunks. One dma-buf is
/// exported for each mapping that a device needs. Where a path cannot register one chunk on one
/// device, it has registered none. A range that fits is one chunk.
///
/// A transfer has to be cut where chunks end, at both ends: split() does that.
///
///     // A pool of 200 GiB on four NICs, with two threads for each.
///     const ChunkedRegion pool(pds, resolver, address, length,
///                              {.registration = {.access = access, .threads = 8}});
///     send_to_peer(pool.remote(2));                       // what the peer needs to use NIC 2
///     for (const TransferPiece& piece : pool.split(remote, transfer, {}, 2)) { ... }
class RDMABUF_EXPORT ChunkedRegion : public RegisteredMemory {
  public:
    /// On each protection domain of @p pds; the functions below take the position of one in this
    /// list.
    /// @throws Error as register_memory(), and EINVAL for a chunk size that is not whole pages or
    ///         is more than a device registers at once, and for Access::zero_based, by which every
    ///         chunk would begin at the same address; ENOMEM when there is no memory for the list
    ///         of chunks.
    ChunkedRegion(std::span<const ProtectionDomain> pds, const Resolver& resolver,
                  std::uintptr_t address, std::size_t length,
                  const ChunkedRegionOptions& options = {});
    /// On one protection domain.
    ChunkedRegion(const ProtectionDomain& pd, const Resolver& resolver, std::uintptr_t address,
                  std::size_t length, const ChunkedRegionOptions& options = {})
        : ChunkedRegion(std::span(&pd, 1), resolver, address, length, options) {}

    /// The number of protection domains.
    [[nodiscard]] std::size_t size() const noexcept { return max_message_sizes_.size(); }
    /// In order. Empty once it is closed; a revoked one still has them: see check().
    [[nodiscard]] std::span<const LocalChunk> chunks(std::size_t i = 0) const noexcept {
        const std::span<const LocalChunk> all = chunks_;
        return all.empty() ? all : all.subspan(i * chunk_count(), chunk_count());
    }
    /// The chunk that has the byte at @p address, as the NIC counts; nullptr outside. O(log n).
    [[nodiscard]] const LocalChunk* find(std::uint64_t address, std::size_t i = 0) const noexcept {
        return detail::find_chunk(chunks(i), address);
    }
    /// The maximum size of a chunk in bytes.
    [[nodiscard]] std::size_t chunk_size() const noexcept { return chunk_size_; }

    /// Cuts a transfer between this memory and a peer's: see TransferSplitter. Its status is ENODEV
    /// when this was revoked, and EBADF when it was closed. Does not throw. This object and
    /// @p remote must outlive the result.
    /// @param max_message_size  the maximum size of a piece in bytes; by default
    ///                          Context::max_message_size() of the device
    [[nodiscard]] TransferSplitter split(
        const RemoteChunks& remote, const Transfer& transfer,
        std::optional<std::uint32_t> max_message_size = std::nullopt,
        std::size_t i = 0) const noexcept {
        const Status usable = check();
        return usable ? TransferSplitter(chunks(i), remote.chunks(), transfer,
                                         max_message_size.value_or(max_message_sizes_[i]))
                      : TransferSplitter(usable);
    }

    /// What a peer needs to reach all of it through protection domain @p i.
    /// @throws Error ENODEV when revoked, EBADF when closed.
    [[nodiscard]] RemoteChunks remote(std::size_t i = 0) const;

    /// The region of a chunk.
    [[nodiscard]] ibv_mr* native(std::size_t chunk, std::size_t i = 0) const noexcept {
        return set().regions[i * chunk_count() + chunk].native();
    }
    /// @throws Error EBADF when this was closed.
    [[nodiscard]] const ProtectionDomain& protection_domain(std::size_t i = 0) const {
        return set().regions[i * chunk_count()].protection_domain();
    }

    /// As RegisteredMemory::close(). From the first call on there are no chunks to be used.
    void close();

  private:
    struct Made {
        std::unique_ptr<detail::RegisteredSet> set;
        std::size_t chunk_size;
        std::vector<std::uint32_t> max_message_sizes;
    };
    [[nodiscard]] static Made make(std::span<const ProtectionDomain> pds, const Resolver& resolver,
                                   std::uintptr_t address, std::size_t length,
                                   const ChunkedRegionOptions& options);
    explicit ChunkedRegion(Made made);
    /// The number of chunks on each protection domain.
    [[nodiscard]] std::size_t chunk_count() const noexcept { return set().regions.size() / size(); }

    std::size_t chunk_size_;
    /// In bytes, of each device.
    std::vector<std::uint32_t> max_message_sizes_;
    /// Those of the first protection domain, then those of the second, and so on.
    std::vector<LocalChunk> chunks_;
};

} // namespace rdmabuf
