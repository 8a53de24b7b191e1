// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <span>

#include <rdmabuf/region.hpp>
#include <rdmabuf/remote_chunks.hpp>
#include <rdmabuf/status.hpp>

namespace rdmabuf {

/// A range of local memory with one lkey. A ChunkedRegion has a list of such chunks.
struct LocalChunk {
    /// The iova of the first byte.
    std::uint64_t address = 0;
    /// The length of the chunk in bytes.
    std::uint64_t length = 0;
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;

    friend bool operator==(const LocalChunk&, const LocalChunk&) noexcept = default;
};
/// Returns @p region as one chunk.
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
///         qp.post_write(piece.local, piece.remote).throw_if_failed("ibv_post_send");
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

    /// Returns success, ERANGE if the transfer is not inside the local or the remote chunks, or
    /// EINVAL if the maximum message size is 0. The constructor sets the status, and next() does
    /// not change it. After an error, next() returns no pieces.
    [[nodiscard]] Status status() const noexcept { return status_; }
    /// Returns the number of bytes for which next() has not returned a piece yet.
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
    /// Returns 1 if @p address is the end of @p chunk: the transfer then continues in the next
    /// chunk. Otherwise returns 0.
    template <class Chunk>
    [[nodiscard]] static int behind(const Chunk& chunk, std::uint64_t address) noexcept {
        return address - chunk.address == chunk.length ? 1 : 0;
    }
    /// Returns the chunk that contains the first byte of the transfer. Sets the status to ERANGE if
    /// the transfer is not inside @p chunks.
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

} // namespace rdmabuf
