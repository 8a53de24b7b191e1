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
    /// The maximum size of a chunk in bytes, a multiple of the page size. 0 for the device's limit
    /// (DeviceAttributes::max_mr_size). If the device then refuses a dma-buf because of its length,
    /// smaller chunks are tried, down to 64 MiB.
    std::size_t chunk_size = 0;
};

/// Memory that is registered in chunks, because a device does not register as much at once. The
/// chunks lie one behind the other and cover every byte; all but the first begin at a page
/// boundary. They are made of one export, by one path: where a path cannot register one of them, it
/// has registered none. A range that fits is one chunk.
///
/// A transfer has to be cut where chunks end, at both ends: split() does that.
class RDMABUF_EXPORT ChunkedRegion : public RegisteredMemory {
  public:
    /// @throws Error as register_memory(), and EINVAL for a chunk size that is not whole pages or
    /// is
    ///         more than the device registers at once, and for Access::zero_based, by which every
    ///         chunk would begin at the same address; ENOMEM when there is no memory for the list
    ///         of chunks.
    ChunkedRegion(const ProtectionDomain& pd, const Resolver& resolver, std::uintptr_t address,
                  std::size_t length, const ChunkedRegionOptions& options = {});

    /// In order. Empty once it is closed; a revoked one still has them: see check().
    [[nodiscard]] std::span<const LocalChunk> chunks() const noexcept { return chunks_; }
    /// The chunk that has the byte at @p address, as the NIC counts; nullptr outside. O(log n).
    [[nodiscard]] const LocalChunk* find(std::uint64_t address) const noexcept {
        return detail::find_chunk(chunks(), address);
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
        std::optional<std::uint32_t> max_message_size = std::nullopt) const noexcept {
        const Status usable = check();
        return usable ? TransferSplitter(chunks(), remote.chunks(), transfer,
                                         max_message_size.value_or(max_message_size_))
                      : TransferSplitter(usable);
    }

    /// What a peer needs to reach all of it. @throws Error ENODEV when revoked, EBADF when closed.
    [[nodiscard]] RemoteChunks remote() const;

    /// The region of a chunk.
    [[nodiscard]] ibv_mr* native(std::size_t chunk) const noexcept {
        return set().regions[chunk].native();
    }
    /// @throws Error EBADF when this was closed.
    [[nodiscard]] const ProtectionDomain& protection_domain() const {
        return set().regions.front().protection_domain();
    }

    /// As RegisteredMemory::close(). From the first call on there are no chunks to be used.
    void close();

  private:
    struct Made {
        std::unique_ptr<detail::RegisteredSet> set;
        std::size_t chunk_size;
        std::uint32_t max_message_size;
    };
    [[nodiscard]] static Made make(const ProtectionDomain& pd, const Resolver& resolver,
                                   std::uintptr_t address, std::size_t length,
                                   const ChunkedRegionOptions& options);
    explicit ChunkedRegion(Made made);

    std::size_t chunk_size_;
    std::uint32_t max_message_size_;
    std::vector<LocalChunk> chunks_;
};

} // namespace rdmabuf
