// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/detail/list.hpp>
#include <rdmabuf/transport/memory.hpp>
#include <rdmabuf/transport/options.hpp>
#include <rdmabuf/transport/remote_memory.hpp>
#include <rdmabuf/transport/request.hpp>
#include <rdmabuf/transport/transfer_entry.hpp>

namespace rdmabuf::transport::detail {

class ChannelState;
struct RdmaTransfer;
struct UnexpectedMessage;

/// The local memory of a request.
struct BufferRef {
    const MemoryState* memory = nullptr;
    std::uintptr_t address = 0;
    std::uint64_t length = 0;

    /// The address of the memory in work requests.
    [[nodiscard]] std::uint64_t device_address() const noexcept {
        return memory->device_address(address);
    }
    [[nodiscard]] bool is_host() const noexcept { return length == 0 || memory->host; }
};

enum class RequestType : std::uint8_t { send = 0, receive = 1, one_sided = 2 };

/// The state that all types of requests have.
struct RequestState {
    /// RequestType in the upper bits, and the position in the pool of this type.
    std::uint32_t index = 0;
    /// The number of requests that have used this object before.
    std::uint32_t generation = 0;
    /// The number of posted work requests that have not completed.
    std::uint32_t pending = 0;
    int error = 0;
    bool in_use = false;
    /// True for a receive from any channel, which the program tests by its endpoint.
    bool from_any = false;
    /// True if the request has completed and its completion was not reported yet.
    bool done = false;
    /// The channel of the request; nullptr for a receive from any channel that has not matched yet.
    ChannelState* channel = nullptr;
    /// ChannelState::number() of the channel, also after the channel was closed.
    std::uint32_t channel_number = 0;
    BufferRef buffer{};
    /// The number of bytes of the message or transfer.
    std::uint64_t bytes = 0;
    Tag tag = 0;
    /// The pointer of the program; requests with a pointer are reported by
    /// Endpoint::poll_completions().
    void* context = nullptr;
    /// The time at which the request fails with ETIMEDOUT, in nanoseconds of now_ns(); 0: never.
    std::int64_t deadline = 0;
    /// The RDMA transfer of the request, or nullptr.
    RdmaTransfer* transfer = nullptr;
    /// The links of the list of completed requests.
    Link<RequestState> completed{};

    [[nodiscard]] RequestType type() const noexcept {
        return static_cast<RequestType>(index >> type_shift);
    }

    static constexpr std::uint32_t type_shift = 20;
};

struct SendRequest : RequestState {
    enum class Stage : std::uint8_t {
        /// The message waits for credits or for room in the send queue, behind earlier messages.
        queued,
        /// The RTS was sent; the CTS or the end of the peer's read has not arrived yet.
        waiting_for_cts,
        /// The devices transfer the data.
        transferring,
        /// All data is posted, and the FIN waits for room in the send queue.
        sending_fin,
    };
    Stage stage{};
    /// The number of bytes that earlier parts of the message have transferred.
    std::uint64_t cts_bytes = 0;
    /// The number of the receive request of the peer, as SharedState::wire_number() returns it.
    std::uint32_t peer_request = 0;
    /// True if a FIN with the length of the message ends the transfer, instead of immediate data.
    bool needs_fin = false;
    /// The number of devices that transfer the data. The FIN contains it.
    std::uint8_t fin_rails = 1;
    /// The links of the queue of the channel in which the request waits.
    Link<SendRequest> link{};
};

struct ReceiveRequest : RequestState {
    enum class Stage : std::uint8_t {
        /// The receive waits for its message.
        posted = 0,
        /// The message has matched; its CTS, NACK or end-of-read message waits for room in the send
        /// queue.
        sending_cts,
        sending_nack,
        sending_rget_done,
        /// The CTS was sent: the peer writes the data.
        waiting_for_data,
        /// The devices of this end transfer the data: an RDMA read, a copy to device memory, or a
        /// flush read.
        transferring,
        copying,
        flushing,
    };
    Stage stage{};
    /// True if the receive was advertised to the peer.
    bool advertised = false;
    /// True if the peer has written to the advertised receive, without RTS and CTS.
    bool written_by_advertisement = false;
    /// True if a FIN with the length of the message has arrived.
    bool fin_arrived = false;
    bool cancel_requested = false;
    bool cancel_sent = false;
    /// The number of devices whose part of the data has arrived.
    std::uint8_t rails_arrived = 0;
    Tag mask = full_mask;
    /// The order in which receives were posted.
    std::uint64_t sequence = 0;
    /// The number of bytes of the RDMA writes with immediate data that have arrived.
    std::uint64_t written = 0;
    /// The send request of the peer.
    std::uint32_t peer_request = 0;
    /// The number of bytes of the message for which a CTS was sent.
    std::uint64_t cts_bytes = 0;
    /// For a copy to device memory: the receive buffer or copy buffer that holds the message, or
    /// the unexpected message that is not copied to such a buffer yet.
    std::uint32_t bounce_buffer = 0;
    UnexpectedMessage* unexpected = nullptr;
    /// The links of the list of TagMatcher or of the channel in which the request waits.
    Link<ReceiveRequest> link{};

    /// Sets the members of a receive that was just taken from its pool.
    void start(Tag wanted, Tag wanted_mask) noexcept {
        tag = wanted;
        mask = wanted_mask;
        stage = Stage::posted;
        advertised = written_by_advertisement = fin_arrived = cancel_requested = cancel_sent =
            false;
        rails_arrived = 0;
        written = 0;
        unexpected = nullptr;
    }
};

struct OneSidedRequest : RequestState {
    enum class Operation : std::uint8_t { put, get, flush, fetch_add, compare_swap, fence };
    Operation operation{};
    /// True if a notification to the peer follows the data.
    bool notifies = false;
    /// The number of bytes in `notification`.
    std::uint16_t notification_size = 0;
    /// True if all transfers of the request are posted.
    bool posted = false;
    /// For a list of transfers: the entries that are not posted yet.
    std::span<const TransferEntry> list{};
    /// The operands of an atomic operation.
    std::uint64_t operand = 0;
    std::uint64_t compare = 0;
    /// The links of the queue of the channel in which the request waits.
    Link<OneSidedRequest> link{};
    RemoteAddress remote{};
    /// The bytes of the notification.
    std::array<std::byte, max_notification> notification; // NOLINT(*-member-init)
};

/// Objects of one request type. The pool grows when all objects are in use, and keeps its memory
/// until it is destroyed. The objects do not move.
template <class T, RequestType Type>
class RequestPool {
  public:
    static constexpr std::uint32_t max_size = std::uint32_t{1} << RequestState::type_shift;

    /// Takes an unused object. @return nullptr if the pool cannot grow
    [[nodiscard]] T* take() noexcept {
        if (free_ == nullptr && !grow()) {
            return nullptr;
        }
        T* const request = free_;
        free_ = request->link.next;
        request->in_use = true;
        request->from_any = false;
        request->done = false;
        request->error = 0;
        request->pending = 0;
        ++in_use_;
        return request;
    }
    /// Gives back an object whose RdmaTransfer has ended.
    void give_back(T* request) noexcept {
        ++request->generation;
        request->in_use = false;
        request->link.next = free_;
        free_ = request;
        --in_use_;
    }
    /// Returns the object at @p position; nullptr if the pool has no such object.
    [[nodiscard]] T* at(std::uint32_t position) const noexcept {
        const std::uint32_t block = position / block_size;
        return block < blocks_.size() ? &blocks_[block][position % block_size] : nullptr;
    }
    [[nodiscard]] std::uint32_t in_use() const noexcept { return in_use_; }
    /// Calls @p visit for each object that is in use.
    template <class Visit>
    void for_each(const Visit& visit) noexcept {
        for (const auto& block : blocks_) {
            for (T& request : std::span(block.get(), block_size)) {
                if (request.in_use) {
                    visit(request);
                }
            }
        }
    }

  private:
    static constexpr std::uint32_t block_size = 64;

    [[nodiscard]] bool grow() noexcept {
        const auto first = static_cast<std::uint32_t>(blocks_.size()) * block_size;
        if (first >= max_size) {
            return false;
        }
        std::unique_ptr<T[]> block(new (std::nothrow) T[block_size]); // NOLINT(*-avoid-c-arrays)
        if (block == nullptr || !reserve()) {
            return false;
        }
        for (std::uint32_t i = block_size; i-- > 0;) {
            block[i].index =
                static_cast<std::uint32_t>(Type) << RequestState::type_shift | (first + i);
            block[i].link.next = free_;
            free_ = &block[i];
        }
        blocks_.push_back(std::move(block)); // reserve() has allocated the memory
        return true;
    }
    [[nodiscard]] bool reserve() noexcept {
        if (blocks_.size() < blocks_.capacity()) {
            return true;
        }
        return static_cast<bool>(attempt([&] { blocks_.reserve(blocks_.size() * 2 + 8); }));
    }

    std::vector<std::unique_ptr<T[]>> blocks_; // NOLINT(*-avoid-c-arrays)
    T* free_ = nullptr;
    std::uint32_t in_use_ = 0;
};

} // namespace rdmabuf::transport::detail
