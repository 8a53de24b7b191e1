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

#include <rdmabuf/error.hpp>
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

    /// Returns the iova of the first byte of the buffer: the address of this byte in work requests.
    [[nodiscard]] std::uint64_t device_address() const noexcept {
        return memory->device_address(address);
    }
    [[nodiscard]] bool is_host() const noexcept { return length == 0 || memory->host; }
    /// Returns the bytes of the buffer. is_host() must be true.
    [[nodiscard]] std::span<const std::byte> host_bytes() const noexcept {
        return {reinterpret_cast<const std::byte*>(address), static_cast<std::size_t>(length)};
    }
    /// Returns true if the memory is registered with this access, or if the buffer has 0 bytes.
    [[nodiscard]] bool allows(Access access) const noexcept {
        return length == 0 || has(memory->access, access);
    }
    /// Returns true if the buffer is not empty and check() returns 0.
    [[nodiscard]] bool is_inside_memory(const void* endpoint) const noexcept {
        return length != 0 && memory != nullptr && memory->endpoint == endpoint &&
               memory->holds(address, length);
    }
    /// Returns true if is_inside_memory() is true and the transport may access the memory with the
    /// CPU.
    [[nodiscard]] bool is_inside_host_memory(const void* endpoint) const noexcept {
        return is_inside_memory(endpoint) && memory->host;
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
    /// Checks that a receive of an endpoint can use the buffer. @return the result of check(), or
    /// EACCES
    [[nodiscard]] int check_receive(const void* endpoint) const noexcept {
        const int error = check(endpoint);
        return error != 0 || allows(Access::local_write | Access::remote_write) ? error : EACCES;
    }
};

enum class RequestType : std::uint8_t { send = 0, receive = 1, one_sided = 2 };

/// The members of a request that are all false while no request uses the object. They have 8 bytes,
/// so that one instruction sets all of them.
struct RequestFlags {
    bool in_use = false;
    /// True for a receive that Endpoint::irecv() started: it accepts messages of any channel.
    bool from_any = false;
    /// True if the request has completed and its completion was not reported yet.
    bool done = false;
    /// True if `simple` is true and the receive has completed successfully.
    bool delivered = false;
    /// True if ChannelState::receive() started the request on its short path: a receive of one
    /// channel, into host memory, without a `context` pointer or a lease, and never advertised. If
    /// `delivered` is also true, RequestPool::recycle() may be called in place of give_back().
    bool simple = false;
    /// True if a loopback work request was flushed, because another loopback work request has
    /// failed. The request is then repeated on a new loopback queue pair.
    bool flushed : 1 = false;
    /// True if a loopback work request was flushed, and the request has not ended since then. It
    /// may have caused the failure. See SharedRail::suspects.
    bool suspect : 1 = false;
    /// True if `context` points to the LeasedMemory of the request, which contains the `context`
    /// pointer of the program.
    bool leased = false;
    /// True while the request is in ChannelState::loopback_queue_ or SharedState::copies.
    bool queued = false;
};
static_assert(sizeof(RequestFlags) == 8);

/// The members that all types of requests have in common.
struct RequestState : RequestFlags {
    /// The number of earlier requests that have used this object.
    std::uint32_t generation = 0;
    /// Identifies this object: the upper bits contain RequestType, the lower bits the position in
    /// the pool of this type.
    std::uint32_t index = 0;
    /// The channel of the request; nullptr for a receive from any channel until it matches a
    /// message, and after the channel was closed.
    ChannelState* channel = nullptr;
    Tag tag = 0;
    BufferRef buffer{};
    /// The length of the message or transfer in bytes. For a receive, valid only after it has
    /// matched a message.
    std::uint64_t bytes = 0;
    /// ChannelState::number() of the channel, also after the channel was closed. For a receive from
    /// any channel that has not matched a message: EndpointState::any_channel.
    std::uint32_t channel_number = 0;
    /// The number of posted work requests of this request that have not completed.
    std::uint32_t pending = 0;
    int error = 0;
    /// The `context` pointer of the program; if `leased` is true, the LeasedMemory that contains
    /// this pointer. If the program's pointer is not nullptr, Endpoint::poll_completions() reports
    /// the request.
    void* context = nullptr;
    /// The time at which the request fails with ETIMEDOUT, in nanoseconds of now_ns(); 0: never.
    std::int64_t deadline = 0;
    /// The RDMA transfer of the request while some of its work requests are not posted yet;
    /// otherwise nullptr.
    RdmaTransfer* transfer = nullptr;
    /// The first of those transfers of the request whose work requests have not all succeeded;
    /// RdmaTransfer::next_of_request is the next one. Always nullptr if the channel has only one
    /// queue pair.
    RdmaTransfer* unconfirmed = nullptr;
    /// The links of the request in ChannelState::loopback_queue_, SharedState::copies or
    /// RendezvousReceiver::unsent_; after the request has ended, in SharedState::completed.
    Link<RequestState> list_link{};

    [[nodiscard]] RequestType type() const noexcept {
        return static_cast<RequestType>(index >> type_shift);
    }
    /// Resets the members that are not initialized when the next request uses this object.
    void reset() noexcept {
        error = 0;
        pending = 0;
        context = nullptr;
    }

    static constexpr std::uint32_t type_shift = 20;
};

using RequestList = List<RequestState, &RequestState::list_link>;

struct SendRequest : RequestState {
    enum class Stage : std::uint8_t {
        /// The message waits for credits, for room in the send queue, or for earlier messages.
        queued,
        /// The RTS was sent. Its answer (`cts`, `rget_done` or `nack`) has not arrived yet.
        waiting_for_cts,
        /// The devices transfer the data, or the request waits for a further CTS.
        transferring,
        /// All RDMA writes of the data are posted. The FIN waits for room in the send queue.
        sending_fin,
    };
    Stage stage{};
    /// The number of bytes of the message that may be transferred: those for which a CTS has
    /// arrived, or all bytes if no CTS is needed. A message can need several CTS.
    std::uint64_t cts_bytes = 0;
    /// The number of the peer's receive request, as SharedState::wire_number() returns it.
    std::uint32_t peer_request = 0;
    /// True if a FIN with the length of the message must follow the data, which was written to an
    /// advertised receive.
    bool needs_fin = false;
    /// True if the request completes only after the message has matched a receive.
    bool synchronous = false;
    /// The number of queue pairs that transfer the data. This number is sent in the FIN.
    std::uint8_t fin_rails = 1;
    /// The links of the request in the queue of unsent messages or in the queue of unsent FINs.
    Link<SendRequest> link{};
};

/// The members of a receive that are reset to their initial values before the receive is started.
struct ReceiveProgress {
    enum class Stage : std::uint8_t {
        /// No message has matched the receive yet.
        posted = 0,
        /// An RTS has matched the receive. A CTS waits for room in the send queue.
        sending_cts,
        /// The message is longer than the receive buffer. A NACK waits for room in the send queue.
        sending_nack,
        /// The RDMA read is complete, or the message has 0 bytes. The `rget_done` message waits for
        /// room in the send queue.
        sending_rget_done,
        /// The peer writes the data by RDMA, and not all of it has arrived.
        waiting_for_data,
        /// The NICs of this end read the data from the memory of the peer by RDMA.
        transferring,
        /// The message has arrived, and a NIC must copy it from a bounce buffer to GPU memory.
        copying,
        /// The completions of all data have arrived. The flush reads, which make the data visible
        /// in GPU memory, are not complete.
        flushing,
    };
    Stage stage{};
    /// True if the receive was advertised to the peer and has not matched a message yet.
    bool advertised = false;
    /// True if `advertised` is true and the advertisement could not be posted yet.
    bool advertisement_unsent = false;
    /// True if the peer writes to the receive buffer without RTS and CTS, because this end had
    /// advertised the buffer.
    bool written_by_advertisement = false;
    /// True if the FIN of the message has arrived; `bytes` is then the length of the message.
    bool fin_arrived = false;
    bool cancel_requested = false;
    bool cancel_sent = false;
    /// Bit i is set if all data that the peer writes on queue pair i has arrived. The bits are
    /// cleared before each further CTS.
    std::uint32_t rails_arrived = 0;
    /// The number of the peer's send request, as SharedState::wire_number() returns it.
    std::uint32_t peer_request = 0;
    /// The total number of bytes that RDMA writes with immediate data and `range_repeated` messages
    /// have reported for this receive.
    std::uint64_t written = 0;
    UnexpectedMessage* unexpected = nullptr;
};

struct ReceiveRequest : RequestState, ReceiveProgress {
    Tag mask = full_mask;
    /// The position of this receive relative to those in TagMatcher::wildcards_: the number of
    /// receives that had been added there when this receive was posted. Includes this receive if it
    /// was added there.
    std::uint64_t sequence = 0;
    /// The number of bytes of the message that the peer may write: those for which a CTS was sent,
    /// or the length of the buffer once the peer has written to the advertised receive.
    std::uint64_t cts_bytes = 0;
    /// For a copy to GPU memory: the index of the receive buffer or copy buffer that holds the
    /// message.
    std::uint32_t bounce_buffer = 0;
    /// The links of the receive in a list of TagMatcher until it matches a message; then in a list
    /// of its channel.
    Link<ReceiveRequest> link{};

    /// Returns true if the message is copied to GPU memory or flushed, by loopback queue pairs.
    [[nodiscard]] bool uses_loopback() const noexcept {
        return stage == Stage::copying || stage == Stage::flushing;
    }
    /// See RequestState::reset().
    void reset() noexcept {
        RequestState::reset();
        mask = full_mask;
        static_cast<ReceiveProgress&>(*this) = {};
    }
};

struct OneSidedRequest : RequestState {
    enum class Operation : std::uint8_t { put, get, flush, fetch_add, compare_swap, fence };
    Operation operation{};
    /// True if a notification must still be sent to the peer, after the data.
    bool notifies = false;
    /// True if the write is unsignaled: the completion of the notification shows that the write has
    /// completed.
    bool unsignaled = false;
    /// The number of bytes in `notification`.
    std::uint16_t notification_size = 0;
    /// True if all work requests are posted, or if an RdmaTransfer of the request will post the
    /// others.
    bool posted = false;
    /// For iput_list() and iget_list(): the entries whose work requests are not all posted.
    std::span<const TransferEntry> list{};
    /// For iput_list() and iget_list(): all entries. They are needed if the list must be posted
    /// again.
    std::span<const TransferEntry> whole_list{};
    /// Bit i is set if work requests of a list or of a fence failed together with queue pair i, and
    /// are not posted again yet on the first queue pair.
    std::uint32_t lost = 0;
    /// True while the request is in OneSided::striped_. If the channel has several queue pairs,
    /// this list contains the unfinished fences, and the unfinished requests of iput_list() and
    /// iget_list().
    bool striped = false;
    /// If `striped` is true: for each queue pair except the first, the number of posted work
    /// requests of this request that have not completed.
    std::array<std::uint32_t, max_channel_rails> pending_on; // NOLINT(*-member-init)
    /// If `striped` is true: for each queue pair except the first, the sequence number of the first
    /// RDMA write with immediate data that is posted there after the last work request of this list
    /// (RailSet::next_immediate()). If this write has arrived, the entries of the list on this
    /// queue pair have arrived, too.
    std::array<std::uint32_t, max_channel_rails> covered_by; // NOLINT(*-member-init)
    /// For fetch_add: the addend. For compare_swap: the new value; the expected value is in
    /// `compare`. For iput_list() and iget_list(): the number of bytes of the first entry of `list`
    /// that are already posted.
    std::uint64_t operand = 0;
    std::uint64_t compare = 0;
    /// The links of the request in OneSided::queued_ or OneSided::notifying_.
    Link<OneSidedRequest> link{};
    /// The links of the request in OneSided::striped_.
    Link<OneSidedRequest> striped_link{};
    RemoteAddress remote{};
    std::array<std::byte, max_notification> notification; // NOLINT(*-member-init)

    [[nodiscard]] bool uses_loopback() const noexcept { return operation == Operation::flush; }
};

/// A pool of requests of one type. The pool grows when all objects are in use, and frees its memory
/// only when it is destroyed. The address of an object does not change.
template <class T, RequestType Type>
class RequestPool {
  public:
    static constexpr std::uint32_t max_size = std::uint32_t{1} << RequestState::type_shift;

    /// Takes an unused object from the pool. Returns nullptr if memory is exhausted or the pool has
    /// max_size objects.
    [[nodiscard]] T* take(const RequestFlags& flags = {.in_use = true}) noexcept {
        if (free_ == nullptr && !grow()) [[unlikely]] {
            return nullptr;
        }
        T* const request = free_;
        free_ = request->link.next;
        static_cast<RequestFlags&>(*request) = flags;
        return request;
    }
    /// Puts an object back into the pool. The RdmaTransfer of the request must have ended.
    void give_back(T* request) noexcept {
        request->reset();
        recycle(request);
    }
    /// Puts an object back into the pool without calling reset(). Its members must already have the
    /// values that reset() sets.
    void recycle(T* request) noexcept {
        ++request->generation;
        static_cast<RequestFlags&>(*request) = {};
        request->link.next = free_;
        free_ = request;
    }
    /// Returns the object at @p position; nullptr if the pool has no such object.
    [[nodiscard]] T* at(std::uint32_t position) const noexcept {
        return contains(position) ? objects_[position] : nullptr;
    }
    [[nodiscard]] bool contains(std::uint32_t position) const noexcept { return position < size_; }
    /// Returns the object at @p position. contains() must be true.
    [[nodiscard]] T& operator[](std::uint32_t position) const noexcept {
        return *objects_[position];
    }
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

    [[nodiscard, gnu::noinline]] bool grow() noexcept {
        if (size_ >= max_size) {
            return false;
        }
        std::unique_ptr<T[]> block(new (std::nothrow) T[block_size]); // NOLINT(*-avoid-c-arrays)
        if (block == nullptr || !reserve()) {
            return false;
        }
        for (std::uint32_t i = block_size; i-- > 0;) {
            block[i].index =
                static_cast<std::uint32_t>(Type) << RequestState::type_shift | (size_ + i);
            block[i].link.next = free_;
            free_ = &block[i];
        }
        // These calls do not throw: reserve() has allocated the memory of both vectors.
        for (std::uint32_t i = 0; i < block_size; ++i) {
            objects_.push_back(&block[i]);
        }
        blocks_.push_back(std::move(block));
        size_ += block_size;
        return true;
    }
    [[nodiscard]] bool reserve() noexcept {
        if (blocks_.size() < blocks_.capacity() && size_ + block_size <= objects_.capacity()) {
            return true;
        }
        return static_cast<bool>(attempt([&] {
            const std::size_t blocks = blocks_.size() * 2 + 8;
            blocks_.reserve(blocks);
            objects_.reserve(blocks * block_size);
        }));
    }

    std::vector<std::unique_ptr<T[]>> blocks_; // NOLINT(*-avoid-c-arrays)
    /// The address of each object, by its position.
    std::vector<T*> objects_;
    std::uint32_t size_ = 0;
    T* free_ = nullptr;
};

} // namespace rdmabuf::transport::detail
