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
    /// The maximum size of a chunk in bytes, a multiple of the page size. If chunk_size is 0, the
    /// library uses the smallest DeviceAttributes::max_mr_size of the devices. If chunk_size is 0
    /// and a device rejects a dma-buf because of its length, the library tries smaller chunks, down
    /// to 64 MiB.
    std::size_t chunk_size = 0;
};

/// Memory that is registered in chunks on one or several protection domains, for ranges larger than
/// the maximum size of a memory region of a device. The chunks are consecutive and cover every byte
/// of the memory. All chunks except the first begin at a page boundary. The chunks are the same on
/// all devices. A range that is not larger than the maximum is one chunk.
///
/// Each chunk is exported as a dma-buf of its own, once for each mapping that a device needs. If
/// this fails, for example at the limit of open files, the chunks share one dma-buf. If a
/// registration method (a RegistrationPath) cannot register a chunk on a device, the library
/// deregisters the chunks of this method and tries the next method.
///
/// A transfer must not cross the end of a local or remote chunk: split() cuts the transfer into
/// pieces.
///
///     // A pool of 200 GiB on four NICs, with two threads for each.
///     const ChunkedRegion pool(pds, resolver, address, length,
///                              {.registration = {.access = access, .threads = 8}});
///     send_to_peer(pool.remote(2));                       // what the peer needs to use NIC 2
///     for (const TransferPiece& piece : pool.split(remote, transfer, {}, 2)) { ... }
class RDMABUF_EXPORT ChunkedRegion : public RegisteredMemory {
  public:
    /// Registers the memory on each protection domain of @p pds. The parameter i of the functions
    /// below is the index of a protection domain in @p pds.
    /// @param address  the first byte of the memory, a CPU or a device pointer
    /// @param length   in bytes
    /// @throws Error with the errors of register_memory(), and with
    ///   - EINVAL: @p pds is empty; the chunk size is not a multiple of the page size, or larger
    ///     than the max_mr_size of a device; Access::zero_based, with which every chunk would begin
    ///     at address 0
    ///   - ENOMEM: there is not enough memory for the list of chunks
    ChunkedRegion(std::span<const ProtectionDomain> pds, const Resolver& resolver,
                  std::uintptr_t address, std::size_t length,
                  const ChunkedRegionOptions& options = {});
    /// This overload registers the memory on one protection domain.
    ChunkedRegion(const ProtectionDomain& pd, const Resolver& resolver, std::uintptr_t address,
                  std::size_t length, const ChunkedRegionOptions& options = {})
        : ChunkedRegion(std::span(&pd, 1), resolver, address, length, options) {}

    /// Returns the number of protection domains on which the memory is registered.
    [[nodiscard]] std::size_t size() const noexcept { return max_message_sizes_.size(); }
    /// Returns the chunks on protection domain @p i, in ascending order of address. The result is
    /// empty after close(). A revocation of the memory does not change the result: call check() to
    /// detect a revocation.
    [[nodiscard]] std::span<const LocalChunk> chunks(std::size_t i = 0) const noexcept {
        const std::span<const LocalChunk> all = chunks_;
        return all.empty() ? all : all.subspan(i * chunk_count(), chunk_count());
    }
    /// Returns the chunk on protection domain @p i that contains the iova @p address, or nullptr if
    /// no chunk contains this iova. The search takes O(log n) time for n chunks.
    [[nodiscard]] const LocalChunk* find(std::uint64_t address, std::size_t i = 0) const noexcept {
        return detail::find_chunk(chunks(i), address);
    }
    /// Returns the maximum chunk size in bytes with which the memory was registered.
    [[nodiscard]] std::size_t chunk_size() const noexcept { return chunk_size_; }

    /// Cuts a transfer between this memory and the memory of a peer into pieces that do not cross
    /// the end of a chunk. This object and @p remote must outlive the returned TransferSplitter,
    /// whose status() is ENODEV if this memory was revoked, and EBADF if this object was closed.
    /// Does not throw.
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

    /// Returns the iova, length and rkey of every chunk on protection domain @p i, for a peer that
    /// accesses this memory.
    /// @throws Error ENODEV if the memory was revoked; EBADF if this object was closed; ENOMEM if
    ///         there is not enough host memory for the result
    [[nodiscard]] RemoteChunks remote(std::size_t i = 0) const;

    /// Returns the ibv_mr of the chunk with the index @p chunk on protection domain @p i. This
    /// object owns the ibv_mr.
    [[nodiscard]] ibv_mr* native(std::size_t chunk, std::size_t i = 0) const noexcept {
        return set().regions[i * chunk_count() + chunk].native();
    }
    /// Returns the protection domain with the index @p i.
    /// @throws Error EBADF if this object was closed
    [[nodiscard]] const ProtectionDomain& protection_domain(std::size_t i = 0) const {
        return set().regions[i * chunk_count()].protection_domain();
    }

    /// Deregisters the memory with RegisteredMemory::close(). After this call chunks() is empty,
    /// even if close() fails.
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
    /// Returns the number of chunks per protection domain. All protection domains have the same
    /// number of chunks.
    [[nodiscard]] std::size_t chunk_count() const noexcept { return set().regions.size() / size(); }

    std::size_t chunk_size_;
    /// The maximum message size in bytes for each protection domain, as its device reports it.
    std::vector<std::uint32_t> max_message_sizes_;
    /// The chunks of all protection domains: first the chunks of protection domain 0, then the
    /// chunks of protection domain 1, and so on.
    std::vector<LocalChunk> chunks_;
};

} // namespace rdmabuf
