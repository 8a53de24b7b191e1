// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/registration.hpp>

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

/// Describes memory that a peer has registered in chunks. Each chunk has its own rkey, and begins
/// where the previous chunk ends. Memory that is registered as one region is one chunk. The peer
/// creates the object with ChunkedRegion::remote(), and sends the result of encode().
class RDMABUF_EXPORT RemoteChunks {
  public:
    RemoteChunks() = default;
    /// Creates an object with one chunk.
    /// @throws Error EINVAL if the region has 0 bytes, or if address + length is above 2^64 - 1
    /* implicit */ RemoteChunks(const RemoteRegion& region);
    /// Creates an object with the chunks of @p chunks.
    /// @throws Error EINVAL if a chunk has 0 bytes, does not begin where the previous chunk ends,
    ///         or if its address + length is above 2^64 - 1; Error::hint() describes the chunk
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

/// A range of local memory with one lkey and one rkey. A ChunkedRegion has a list of such chunks.
struct LocalChunk {
    /// The iova of the first byte.
    std::uint64_t address = 0;
    /// The length of the chunk in bytes.
    std::uint64_t length = 0;
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;

    friend bool operator==(const LocalChunk&, const LocalChunk&) noexcept = default;
};
/// Returns @p region as one chunk, whose address is the iova of the region.
[[nodiscard]] inline LocalChunk as_chunk(const Region& region) noexcept {
    return {.address = region.iova(),
            .length = region.length(),
            .lkey = region.lkey(),
            .rkey = region.rkey()};
}

/// The local and the remote address of one work request: `qp.post_write(piece.local,
/// piece.remote)`.
struct TransferPiece {
    ibv_sge local{};
    RemoteAddress remote{};
};

/// A transfer between local and remote memory. The addresses are iovas, and the length is in bytes.
struct Transfer {
    std::uint64_t local_address = 0;
    std::uint64_t remote_address = 0;
    std::uint64_t length = 0;
};

/// Splits one transfer into the smallest number of pieces, in order. No piece crosses the end of a
/// local or remote chunk, and no piece is longer than the maximum message size. The local and the
/// remote memory may have different chunks, or one chunk. The splitter neither throws nor
/// allocates. The chunks are not copied, and must outlive the splitter.
///
///     TransferSplitter splitter(region.chunks(), peer.chunks(), {.local_address = …, …});
///     for (TransferPiece piece; splitter.next(piece);) {
///         qp.post_write(piece.local, piece.remote).throw_if_failed();
///     }
///     splitter.status().throw_if_failed("TransferSplitter");
class TransferSplitter {
  public:
    /// The maximum size of a message in InfiniBand: 2 GiB, in bytes. A device may have a smaller
    /// maximum (ConnectX: 1 GiB).
    static constexpr std::uint32_t most = std::uint32_t{1} << 31U;

    /// Creates a splitter for @p transfer. status() reports invalid parameters.
    /// @param max_message_size  the maximum size of a piece in bytes: Context::max_message_size(),
    ///                          or ibv_port_attr::max_msg_sz of the port
    TransferSplitter(std::span<const LocalChunk> local, std::span<const RemoteRegion> remote,
                     const Transfer& transfer, std::uint32_t max_message_size) noexcept
        : transfer_(transfer), max_message_size_(max_message_size) {
        if (max_message_size == 0) {
            status_ = Status(EINVAL);
        } else if (transfer.length != 0) {
            local_ = find_first(local, transfer.local_address);
            remote_ = find_first(remote, transfer.remote_address);
        }
        if (!status_) {
            transfer_.length = 0;
        }
    }

    /// Creates a splitter that has no pieces.
    /// @param status  the error that status() returns
    explicit TransferSplitter(Status status) noexcept : max_message_size_(most), status_(status) {}

    /// Returns success, or an error, after which there are no pieces: ERANGE if the transfer is not
    /// inside the local or the remote chunks, EINVAL if the maximum message size is 0, or the
    /// status that was passed to the constructor. The addresses of a transfer of 0 bytes are not
    /// checked. next() does not change the status.
    [[nodiscard]] Status status() const noexcept { return status_; }
    /// Returns the number of bytes for which next() has not returned a piece yet; 0 if status() is
    /// an error.
    [[nodiscard]] std::uint64_t remaining() const noexcept { return transfer_.length; }

    /// Sets @p piece to the next piece.
    /// @return false, with @p piece unchanged, if there are no more pieces
    [[nodiscard]] bool next(TransferPiece& piece) noexcept {
        if (transfer_.length == 0) {
            return false;
        }
        local_ += behind(*local_, transfer_.local_address);
        remote_ += behind(*remote_, transfer_.remote_address);
        const std::uint64_t length = std::min({transfer_.length, std::uint64_t{max_message_size_},
                                               left_in(*local_, transfer_.local_address),
                                               left_in(*remote_, transfer_.remote_address)});
        piece.local = {.addr = transfer_.local_address,
                       .length = static_cast<std::uint32_t>(length),
                       .lkey = local_->lkey};
        piece.remote = {.address = transfer_.remote_address, .rkey = remote_->rkey};
        transfer_.local_address += length;
        transfer_.remote_address += length;
        transfer_.length -= length;
        return true;
    }

    /// An iterator for a range-based loop: `for (const TransferPiece& piece : splitter)`. The loop
    /// calls next(), so the splitter does not return the same pieces again.
    class Iterator {
      public:
        explicit Iterator(TransferSplitter& splitter) noexcept : splitter_(&splitter) { ++*this; }
        [[nodiscard]] const TransferPiece& operator*() const noexcept { return piece_; }
        [[nodiscard]] const TransferPiece* operator->() const noexcept { return &piece_; }
        Iterator& operator++() noexcept {
            more_ = splitter_->next(piece_);
            return *this;
        }
        struct End {};
        friend bool operator==(const Iterator& iterator, End) noexcept { return !iterator.more_; }

      private:
        TransferSplitter* splitter_;
        TransferPiece piece_{};
        bool more_ = false;
    };
    [[nodiscard]] Iterator begin() noexcept { return Iterator(*this); }
    [[nodiscard]] static Iterator::End end() noexcept { return {}; }

  private:
    template <class Chunk>
    [[nodiscard]] static std::uint64_t left_in(const Chunk& chunk, std::uint64_t address) noexcept {
        return chunk.length - (address - chunk.address);
    }
    /// Returns the number of chunks by which to advance: 1 if @p address is the end of @p chunk, so
    /// that the transfer continues in the next chunk; otherwise 0.
    template <class Chunk>
    [[nodiscard]] static int behind(const Chunk& chunk, std::uint64_t address) noexcept {
        return address - chunk.address == chunk.length ? 1 : 0;
    }
    /// Returns the chunk that contains the first byte of the transfer, or nullptr if there is none.
    /// Sets the status to ERANGE if the transfer is not inside @p chunks.
    template <class Chunk>
    [[nodiscard]] const Chunk* find_first(std::span<const Chunk> chunks,
                                          std::uint64_t address) noexcept {
        const Chunk* const first = detail::find_chunk(chunks, address);
        if (first == nullptr ||
            transfer_.length > chunks.back().address - address + chunks.back().length) {
            status_ = Status(ERANGE);
        }
        return first;
    }

    Transfer transfer_{};
    const LocalChunk* local_ = nullptr;
    const RemoteRegion* remote_ = nullptr;
    std::uint32_t max_message_size_;
    Status status_;
};

struct ChunkedRegionOptions {
    RegistrationOptions registration = {};
    /// The maximum size of a chunk in bytes, a multiple of the page size. If chunk_size is 0, the
    /// library uses the smallest DeviceAttributes::max_mr_size of the devices, rounded down to
    /// whole pages. If a device then rejects a dma-buf with an error that the length can cause, the
    /// library tries smaller chunks, down to 64 MiB. The trail then has only the attempts with the
    /// last chunk size.
    std::size_t chunk_size = 0;
};

/// Memory that is registered in chunks on one or several protection domains, for ranges larger than
/// the maximum size of a memory region of a device. The chunks are consecutive and cover every byte
/// of the memory. All chunks except the first begin at a page boundary. The chunks are the same on
/// all devices. A short range is one chunk.
///
/// On the dma-buf paths, each chunk is exported as a dma-buf of its own, for each mapping that a
/// device needs. If there are more than 64 chunks, several consecutive chunks share a dma-buf. If
/// these exports fail, for example at the limit of open files, all chunks share one dma-buf. If
/// Allocation::single_import is set, every chunk is exported for each device, and chunks never
/// share a dma-buf. If a RegistrationPath cannot register a chunk on a device, the library
/// deregisters the chunks of this path and tries the next path.
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
    ///   - ENOMEM: there is not enough host memory, for example for the list of chunks
    ChunkedRegion(std::span<const ProtectionDomain> pds, const Resolver& resolver,
                  std::uintptr_t address, std::size_t length,
                  const ChunkedRegionOptions& options = {});
    /// Same as the constructor above, for a single protection domain.
    ChunkedRegion(const ProtectionDomain& pd, const Resolver& resolver, std::uintptr_t address,
                  std::size_t length, const ChunkedRegionOptions& options = {})
        : ChunkedRegion(std::span(&pd, 1), resolver, address, length, options) {}

    /// Returns the number of protection domains on which the memory is registered.
    [[nodiscard]] std::size_t size() const noexcept { return max_message_sizes_.size(); }
    /// Returns the chunks on the protection domain with the index @p i, in ascending order of
    /// address. The result is empty after close(). A revocation of the memory does not change the
    /// result: call check() to detect a revocation.
    [[nodiscard]] std::span<const LocalChunk> chunks(std::size_t i = 0) const noexcept {
        const std::span<const LocalChunk> all = chunks_;
        return all.empty() ? all : all.subspan(i * chunk_count(), chunk_count());
    }
    /// Returns the chunk on the protection domain with the index @p i that contains the iova
    /// @p address, or nullptr if no chunk contains this iova. The search takes O(log n) time for n
    /// chunks.
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

    /// Returns the iova, length and rkey of every chunk on the protection domain with the index
    /// @p i, for a peer that accesses this memory.
    /// @throws Error ENODEV if the memory was revoked; EBADF if this object was closed, or if there
    ///         is no such index; ENOMEM if there is not enough host memory for the result
    [[nodiscard]] RemoteChunks remote(std::size_t i = 0) const;

    /// Returns the ibv_mr of the chunk with the index @p chunk on the protection domain with the
    /// index @p i; nullptr if @p i is not such an index, or if the chunk was deregistered. This
    /// object owns the ibv_mr.
    [[nodiscard]] ibv_mr* native(std::size_t chunk, std::size_t i = 0) const noexcept {
        return i < size() ? regions()[i * chunk_count() + chunk].native() : nullptr;
    }
    /// Returns the protection domain at position @p i of the list that was passed to the
    /// constructor.
    /// @throws Error EBADF if this object was closed, or if there is no such position
    [[nodiscard]] const ProtectionDomain& protection_domain(std::size_t i = 0) const {
        if (i >= size()) {
            refuse("ChunkedRegion::protection_domain");
        }
        return regions()[i * chunk_count()].protection_domain();
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
    [[nodiscard]] std::size_t chunk_count() const noexcept { return regions().size() / size(); }

    std::size_t chunk_size_;
    /// The maximum message size in bytes for each protection domain, as its device reports it.
    std::vector<std::uint32_t> max_message_sizes_;
    /// The chunks of all protection domains: first the chunks of protection domain 0, then the
    /// chunks of protection domain 1, and so on.
    std::vector<LocalChunk> chunks_;
};

} // namespace rdmabuf
