// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/detail/list.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>
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

    /// Returns the iova of the memory, which is its address in work requests.
    [[nodiscard]] std::uint64_t device_address() const noexcept {
        return memory->device_address(address);
    }
    [[nodiscard]] bool is_host() const noexcept { return length == 0 || memory->host; }
    /// Returns true if the memory is registered with this access. A buffer of 0 bytes needs none.
    [[nodiscard]] bool allows(Access access) const noexcept {
        return length == 0 || has(memory->access, access);
    }
    /// Checks that a request of an endpoint can use the buffer.
    /// @param endpoint  see MemoryState::endpoint
    /// @return 0; EINVAL if this endpoint has not registered the memory; ERANGE if a part of the
    ///         buffer is outside the memory
    [[nodiscard]] int check(const void* endpoint) const noexcept {
        if (length == 0) {
            return 0;
        }
        if (memory == nullptr || memory->endpoint != endpoint) {
            return EINVAL;
        }
        return memory->holds(address, length) ? 0 : ERANGE;
    }
};

enum class RequestType : std::uint8_t { send = 0, receive = 1, one_sided = 2 };

/// The members that all types of requests have in common.
struct RequestState {
    /// Identifies this object: the upper bits contain RequestType, the lower bits the position in
    /// the pool of this type.
    std::uint32_t index = 0;
    /// The number of earlier requests that have used this object.
    std::uint32_t generation = 0;
    /// The number of posted work requests of this request that have not completed.
    std::uint32_t pending = 0;
    int error = 0;
    bool in_use = false;
    /// True for a receive from any channel. The program tests such a receive with Endpoint::test().
    bool from_any = false;
    /// True if the request has completed and its completion was not reported yet.
    bool done = false;
    /// True if `context` points to the LeasedMemory of the request, which contains the `context`
    /// pointer of the program.
    bool leased = false;
    /// The channel of the request. A receive from any channel has nullptr until it matches a
    /// message.
    ChannelState* channel = nullptr;
    /// ChannelState::number() of the channel. The number remains valid after the channel was
    /// closed.
    std::uint32_t channel_number = 0;
    BufferRef buffer{};
    /// The length of the message or transfer in bytes.
    std::uint64_t bytes = 0;
    Tag tag = 0;
    /// The `context` pointer of the program. If it is not nullptr, Endpoint::poll_completions()
    /// reports the request.
    void* context = nullptr;
    /// The time at which the request fails with ETIMEDOUT, in nanoseconds of now_ns(); 0: never.
    std::int64_t deadline = 0;
    /// The RDMA transfer of the request while it is not posted completely; otherwise nullptr.
    RdmaTransfer* transfer = nullptr;
    /// The transfers of the request whose work requests have not all succeeded, in the order in
    /// which they were started. Always nullptr if the channel has one queue pair only.
    RdmaTransfer* unconfirmed = nullptr;
    /// The links of the request in the list SharedState::completed.
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
        /// The RTS was sent. The CTS, or the message that the peer has read the data, has not
        /// arrived.
        waiting_for_cts,
        /// The devices transfer the data.
        transferring,
        /// All data is posted. The FIN waits for room in the send queue.
        sending_fin,
    };
    Stage stage{};
    /// A message can need several CTS. This is the number of its bytes that all CTS so far have
    /// covered.
    std::uint64_t cts_bytes = 0;
    /// The number of the peer's receive request, as SharedState::wire_number() returns it.
    std::uint32_t peer_request = 0;
    /// True if the sender must send a FIN with the length of the message, instead of immediate
    /// data.
    bool needs_fin = false;
    /// The number of queue pairs that transfer the data. This number is sent in the FIN.
    std::uint8_t fin_rails = 1;
    /// The links of the request in the queue of the channel in which it waits.
    Link<SendRequest> link{};
};

struct ReceiveRequest : RequestState {
    enum class Stage : std::uint8_t {
        /// The receive waits for its message.
        posted = 0,
        /// The receive has matched its message. Its CTS, NACK or end-of-read message waits for room
        /// in the send queue.
        sending_cts,
        sending_nack,
        sending_rget_done,
        /// The CTS was sent, and the peer writes the data.
        waiting_for_data,
        /// The NICs of this end transfer the data by an RDMA read, copy it to GPU memory, or
        /// perform a flush read.
        transferring,
        copying,
        flushing,
    };
    Stage stage{};
    /// True if an advertisement of the receive was sent to the peer.
    bool advertised = false;
    /// True if the peer writes to the receive because of its advertisement, without RTS and CTS.
    bool written_by_advertisement = false;
    /// True if a FIN with the length of the message has arrived.
    bool fin_arrived = false;
    bool cancel_requested = false;
    bool cancel_sent = false;
    /// Bit i is set if queue pair i has transferred its fragment of the data.
    std::uint32_t rails_arrived = 0;
    Tag mask = full_mask;
    /// A number that increases with each posted receive, to compare the order of receives.
    std::uint64_t sequence = 0;
    /// The total length in bytes of the RDMA writes with immediate data that have arrived.
    std::uint64_t written = 0;
    /// The number of the peer's send request, as SharedState::wire_number() returns it.
    std::uint32_t peer_request = 0;
    /// The number of bytes of the message for which a CTS was already sent.
    std::uint64_t cts_bytes = 0;
    /// For a copy to GPU memory: the index of the receive buffer or copy buffer that holds the
    /// message.
    std::uint32_t bounce_buffer = 0;
    UnexpectedMessage* unexpected = nullptr;
    /// The links of the request in the list of the TagMatcher or of the channel in which it waits.
    Link<ReceiveRequest> link{};

    /// Initializes a receive that was taken from its pool.
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
    /// True if a notification is sent to the peer after the data.
    bool notifies = false;
    /// The number of bytes in `notification`.
    std::uint16_t notification_size = 0;
    /// True if all work requests for the data of the request are posted.
    bool posted = false;
    /// For a list of transfers: the entries that are not posted completely.
    std::span<const TransferEntry> list{};
    /// For a list of transfers: all entries.
    std::span<const TransferEntry> whole_list{};
    /// True if work requests of a list or of a fence were lost with their queue pair, and are not
    /// repeated yet.
    bool lost = false;
    /// True if the request is in OneSided::striped_.
    bool striped = false;
    /// For a request with `striped`: RequestState::pending of each queue pair except the first.
    std::array<std::uint32_t, max_channel_rails> pending_on; // NOLINT(*-member-init)
    /// The first operand of an atomic operation. For a list of transfers: the number of posted
    /// bytes of the current entry.
    std::uint64_t operand = 0;
    std::uint64_t compare = 0;
    /// The links of the request in the queue of the channel in which it waits.
    Link<OneSidedRequest> link{};
    /// The links of the request in OneSided::striped_.
    Link<OneSidedRequest> striped_link{};
    RemoteAddress remote{};
    /// The bytes of the notification.
    std::array<std::byte, max_notification> notification; // NOLINT(*-member-init)
};

/// A pool of requests of one type. The pool grows when all objects are in use, and frees its memory
/// only when it is destroyed. The address of an object does not change.
template <class T, RequestType Type>
class RequestPool {
  public:
    static constexpr std::uint32_t max_size = std::uint32_t{1} << RequestState::type_shift;

    /// Returns an unused object, which is then in use; nullptr if memory is exhausted.
    [[nodiscard]] T* take() noexcept {
        if (free_ == nullptr && !grow()) {
            return nullptr;
        }
        T* const request = free_;
        free_ = request->link.next;
        request->in_use = true;
        request->from_any = false;
        request->done = false;
        request->leased = false;
        request->error = 0;
        request->pending = 0;
        ++in_use_;
        return request;
    }
    /// Returns an object to the pool. The RdmaTransfer of the request must have ended.
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
