// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/transport/detail/list.hpp>
#include <rdmabuf/transport/detail/request_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>
#include <rdmabuf/transport/memory.hpp>
#include <rdmabuf/transport/remote_memory.hpp>

namespace rdmabuf::transport::detail {

/// An RDMA write or read. It may be striped over several queue pairs and may consist of many work
/// requests. On a channel with one queue pair, the object exists until the transfer is posted
/// completely. On other channels, the object exists until all work requests have succeeded, because
/// work requests that fail with their queue pair are posted again on the first queue pair.
struct RdmaTransfer {
    /// The part of a transfer that one queue pair transfers, as offsets in bytes.
    struct Share {
        std::uint64_t begin = 0;
        /// Offset of the next byte to post.
        std::uint64_t next = 0;
        std::uint64_t end = 0;
        /// The sequence number of an RDMA write with immediate data on this queue pair; see
        /// ChannelRail::immediates_posted. If `has_number` is true, this write is the last one of
        /// this part. If `is_covered` is true, it is the next such write after this part. In both
        /// cases, the part has arrived if the write has arrived, because packets of a queue pair
        /// arrive in order.
        std::uint32_t number = 0;
        /// The number of posted work requests on this queue pair that have not completed. Counted
        /// only on channels with several queue pairs.
        std::uint32_t pending = 0;
        bool has_number = false;
        bool is_covered = false;
        /// True while a work request of this part must still be posted. This can also be true if
        /// `next` is equal to `end`, because a write of 0 bytes can have immediate data.
        bool unposted = false;
        /// True if the queue pair has failed and this part is posted again on the first queue pair.
        bool repeated = false;
    };

    bool is_read = false;
    /// True if the last work request of each queue pair has immediate data; the first queue pair is
    /// an exception if `has_fin` is true.
    bool has_immediate = false;
    /// True if this end sends a FIN message on the first queue pair after the data. The last RDMA
    /// write on this queue pair then has no immediate data.
    bool has_fin = false;
    /// True if later messages of the channel must be posted after this transfer is posted on the
    /// first queue pair.
    bool keeps_order = false;
    Immediate immediate{};
    RequestState* request = nullptr;
    const MemoryState* memory = nullptr;
    std::uint64_t local_address = 0;
    std::uint64_t remote_address = 0;
    RemoteTable remote{};
    std::array<Share, max_channel_rails> shares{};
    /// Bit i is set if work requests of this transfer failed together with queue pair i, and must
    /// be posted again on the first queue pair.
    std::uint32_t lost = 0;
    /// The sum of Share::pending of all queue pairs.
    std::uint32_t pending = 0;
    /// The next transfer in the list RequestState::unconfirmed.
    RdmaTransfer* next_of_request = nullptr;
    /// The links of the transfer in the channel's list of transfers that are not posted completely.
    Link<RdmaTransfer> link{};
    /// The links of the transfer in the list of all transfers of a channel with several queue
    /// pairs.
    Link<RdmaTransfer> all{};

    /// Sets the memory of the peer that the transfer accesses.
    /// @param offset  the offset of the transfer in this memory, in bytes
    void set_remote(const RemoteTable& table, std::uint64_t offset) noexcept {
        remote_address = table.regions[0].address + offset;
        remote.chunks = table.chunks;
        remote.rails = table.rails;
        // Unused regions are not copied, because a RemoteTable is large.
        std::copy_n(table.regions.begin(), table.chunks, remote.regions.begin());
    }
};

/// Sets @p piece to the first part of @p transfer that one work request can transfer.
/// @param device  the index of the device, whose keys are used
/// @return false if the part is not inside the local and the remote memory
[[nodiscard]] inline bool first_piece(const MemoryState& local, const RemoteTable& remote,
                                      std::size_t device, rdmabuf::Transfer transfer,
                                      std::uint32_t max_message, TransferPiece& piece) noexcept {
    const KeyedChunk* const chunk = remote.find(transfer.remote_address);
    if (chunk == nullptr) {
        return false;
    }
    const RemoteRegion region = {
        .address = chunk->address, .length = chunk->length, .rkey = chunk->rkeys[device]};
    transfer.length =
        std::min(transfer.length, chunk->length - (transfer.remote_address - chunk->address));
    return TransferSplitter(local.rail(device), {&region, 1}, transfer, max_message).next(piece);
}

/// A pool of unused transfers. It grows when all transfers are in use.
class TransferPool {
  public:
    /// Takes a transfer from the pool. It is initialized as an RDMA write without immediate data
    /// from the memory of @p request. The caller must set the memory of the peer.
    /// @param offset  the offset of the transfer in the buffer of the request, in bytes
    /// @return nullptr if memory is exhausted
    [[nodiscard]] RdmaTransfer* take(RequestState& request, std::uint64_t offset) noexcept {
        if (free_ == nullptr && !grow()) {
            return nullptr;
        }
        RdmaTransfer* const transfer = free_;
        free_ = transfer->link.next;
        transfer->is_read = transfer->has_immediate = transfer->has_fin = transfer->keeps_order =
            false;
        transfer->immediate = {};
        transfer->request = &request;
        transfer->memory = request.buffer.memory;
        // A buffer of 0 bytes may have no memory.
        transfer->local_address =
            request.buffer.length == 0 ? 0 : request.buffer.device_address() + offset;
        return transfer;
    }
    void give_back(RdmaTransfer* transfer) noexcept {
        transfer->link.next = free_;
        free_ = transfer;
    }
    /// Returns the number of transfers that were taken and not given back.
    [[nodiscard]] std::size_t taken() const noexcept {
        std::size_t count = transfers_.size();
        for (const RdmaTransfer* i = free_; i != nullptr; i = i->link.next) {
            --count;
        }
        return count;
    }

  private:
    [[nodiscard]] bool grow() noexcept {
        return static_cast<bool>(attempt([this] {
            transfers_.push_back(std::make_unique<RdmaTransfer>());
            give_back(transfers_.back().get());
        }));
    }

    std::vector<std::unique_ptr<RdmaTransfer>> transfers_;
    RdmaTransfer* free_ = nullptr;
};

} // namespace rdmabuf::transport::detail
