// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "objects/completion_queue.hpp"
#include "objects/device.hpp"
#include "objects/memory.hpp"
#include "objects/parent_domain.hpp"

namespace softverbs {

namespace fabric {
class Connection;
}
struct XrcDomain; // xrc_domain.hpp
struct Xrcd;
struct TagList; // tag_matching.hpp

inline constexpr std::size_t max_sge = 16;
inline constexpr std::uint32_t max_inline = 1024;
inline constexpr std::uint32_t psn_mask = 0xffffff;

/// Whether requests are acknowledged: RC, and XRC, which is RC on the wire.
[[nodiscard]] constexpr bool is_reliable(ibv_qp_type type) noexcept {
    return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

/// An address handle. Posting copies its attributes, so that the program may destroy it afterwards.
struct Ah : ibv_ah {
    Ah() : ibv_ah{} {}
    ibv_ah_attr attributes{};
};

/// A work request in a send queue.
struct SendRequest {
    std::uint64_t wr_id = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    unsigned flags = 0; // IBV_SEND_*
    __be32 imm_data = 0;
    std::uint32_t invalidate_rkey = 0; // IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV
    std::uint64_t remote_address = 0;
    std::uint32_t rkey = 0;
    std::uint64_t compare_add = 0;
    std::uint64_t swap = 0;
    // UD only
    ibv_ah_attr destination{};
    std::uint32_t remote_qpn = 0;
    std::uint32_t remote_qkey = 0;
    // IBV_WR_BIND_MW only; rkey above is the new key of the window
    Mw* window = nullptr;
    ibv_mw_bind_info bind{};

    /// Number of scatter/gather entries. The entries are in this request's part of
    /// Qp::send_entries; with IBV_SEND_INLINE, the data is in its part of Qp::inline_bytes.
    std::uint32_t entries = 0;
    bool is_inline = false;
    /// Total length of the data in bytes.
    std::uint64_t length = 0;

    // Fields that the engine maintains.
    enum class State : std::uint8_t { waiting, sending, sent, done };
    State state = State::waiting;
    /// A read in several parts: the latest part was requested and has not arrived. The next part is
    /// requested after it.
    bool awaiting = false;
    /// Read whose data is copied directly from the responder's memory. The copy happens after the
    /// response has arrived.
    bool fetches = false;
    /// Packet sequence number: one per request, also for reads and atomics.
    std::uint32_t psn = 0;
    /// Number of bytes sent so far; for a read, received so far.
    std::uint64_t offset = 0;
    /// Number of packets sent on the connection, up to the last one of this request
    /// (Connection::sent()). The responder cannot have responded before it has consumed as many
    /// packets (Connection::taken()).
    std::uint64_t record = 0;

    /// Prepares the slot for a new request. Fields that only some opcodes use are not reset,
    /// because requests with these opcodes set them.
    void reset() noexcept {
        imm_data = 0;
        invalidate_rkey = 0;
        remote_address = 0;
        rkey = 0;
        destination.port_num = 0;
        entries = 0;
        is_inline = false;
        length = 0;
        state = State::waiting;
        awaiting = fetches = false;
        psn = 0;
        offset = 0;
        record = 0;
    }
};

struct RecvRequest {
    std::uint64_t wr_id = 0;
    std::uint32_t entries = 0;
    std::array<ibv_sge, max_sge> entry{};
};

/// A fixed-capacity ring of work requests. Its memory is allocated for the first request, because a
/// program may create thousands of queue pairs and use few.
///
/// A request leaves the ring with pop() when it completes, but its slot stays occupied until free()
/// or free_until(), when the program has polled a completion that covers it. So, as with providers,
/// a program that does not poll gets ENOMEM once it has posted as many requests as the queue is
/// deep.
template <class Request>
class Ring {
  public:
    explicit Ring(std::size_t capacity = 0) noexcept : capacity_(capacity) {}
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    /// Number of slots: the capacity rounded up to a power of two, which makes place() cheap.
    [[nodiscard]] std::size_t places() const noexcept { return std::bit_ceil(capacity_); }
    /// Number of requests that have not completed.
    [[nodiscard]] std::size_t size() const noexcept {
        return static_cast<std::size_t>(end_ - first_);
    }
    [[nodiscard]] bool empty() const noexcept { return first_ == end_; }
    /// Number of occupied slots.
    [[nodiscard]] std::size_t occupied() const noexcept {
        return static_cast<std::size_t>(end_ - freed_);
    }
    [[nodiscard]] bool full() const noexcept { return occupied() == capacity_; }
    /// Positions increase without limit: first() is the oldest request that has not completed,
    /// end() is one after the newest.
    [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
    [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
    /// The slots from end() up to this position are free.
    [[nodiscard]] std::uint64_t limit() const noexcept { return freed_ + capacity_; }
    [[nodiscard]] std::size_t place(std::uint64_t position) const noexcept {
        return static_cast<std::size_t>(position) & (slots_.size() - 1);
    }
    [[nodiscard]] Request& operator[](std::uint64_t position) noexcept {
        return slots_[place(position)];
    }
    [[nodiscard]] const Request& operator[](std::uint64_t position) const noexcept {
        return slots_[place(position)];
    }
    [[nodiscard]] Request& front() noexcept { return (*this)[first_]; }
    /// Allocates the slots, before any of them is used. Throws std::bad_alloc.
    /// @param memory  memory for the slots, used if it is large enough; otherwise the ring
    /// allocates its own
    void allocate(std::span<std::byte> memory = {}) {
        if (memory.size() < places() * sizeof(Request)) {
            own_.resize(places());
            slots_ = own_;
        } else {
            slots_ = {reinterpret_cast<Request*>(memory.data()), places()};
            std::uninitialized_value_construct(slots_.begin(), slots_.end());
        }
    }
    /// Number of bytes that allocate() needs.
    [[nodiscard]] std::size_t bytes() const noexcept {
        return capacity_ == 0 ? 0 : places() * sizeof(Request);
    }
    [[nodiscard]] bool allocated() const noexcept { return !slots_.empty(); }
    /// Adds a request and returns its slot, which still has its old content. The ring must not be
    /// full.
    Request& push() noexcept { return slots_[place(end_++)]; }
    /// Adds to the ring all requests that the caller has written to the slots before @p position.
    void publish(std::uint64_t position) noexcept { end_ = position; }
    void pop() noexcept { ++first_; }
    /// Frees the slot of one completed request.
    void free() noexcept { ++freed_; }
    /// Frees the slots of all completed requests before @p position.
    void free_until(std::uint64_t position) noexcept { freed_ = std::max(freed_, position); }
    /// Marks @p count slots of a new ring as occupied by completed requests.
    void occupy(std::size_t count) noexcept { first_ = end_ = first_ + count; }
    /// Removes all requests and frees all slots.
    void clear() noexcept { first_ = freed_ = end_; }

  private:
    std::size_t capacity_;
    std::vector<Request> own_;
    std::span<Request> slots_;
    std::uint64_t freed_ = 0;
    std::uint64_t first_ = 0;
    std::uint64_t end_ = 0;
};

struct Srq : ibv_srq {
    Srq() : ibv_srq{} {}
    Ring<RecvRequest> requests;
    std::uint32_t max_sge = 0;
    /// When fewer requests than this are left, IBV_EVENT_SRQ_LIMIT_REACHED is raised once and the
    /// limit becomes 0. 0: no event.
    std::uint32_t limit = 0;
    unsigned users = 0;
    std::uint32_t unacknowledged = 0; // see acknowledgements.hpp
    QueueMemory memory;
    /// IBV_SRQT_XRC only: the XRC domain.
    Xrcd* xrcd = nullptr;
    /// IBV_SRQT_XRC only: the SRQ number that requests contain.
    std::uint32_t number = 0;
    /// IBV_SRQT_TM only: the tagged buffers; see tag_matching.hpp.
    std::shared_ptr<TagList> tags;
    /// IBV_SRQT_XRC and IBV_SRQT_TM: the completion queue.
    Cq* queue = nullptr;
};

/// Requester state of a queue pair. The engine maintains it.
struct Requester {
    /// Position of the first request that was not sent completely. Requests from sends.first() up
    /// to here were sent and wait for their completion.
    std::uint64_t next = 0;
    std::uint32_t next_psn = 0;
    unsigned reads_in_flight = 0; // including atomics
    /// Reads in flight whose data is copied directly from the responder's memory. Later requests
    /// that may change that memory wait for them.
    unsigned fetches_in_flight = 0;
    unsigned retries_left = 0;
    unsigned rnr_retries_left = 0;
    /// Time of the next timer, CLOCK_MONOTONIC in nanoseconds. When it expires, the requester sends
    /// again after an RNR NAK (waiting_for_receiver), or checks whether a response has arrived. 0:
    /// no timer.
    std::uint64_t deadline = 0;
    bool waiting_for_receiver = false;
    /// A response has arrived since the timer was set.
    bool progressed = false;
    /// Requests before this position are retransmissions. Each of them requests an ACK.
    std::uint64_t resent_until = 0;
    /// Position after the latest request that requested an ACK. A missing ACK for a later request
    /// is not a timeout.
    std::uint64_t ack_requested_until = 0;
    /// Connected queue pairs: index of the device that has the destination address, or -1.
    int device = -1;
    // Every ibv_modify_qp() sets port, own_device and short_path, for the fast path of small
    // messages.
    /// The port of the queue pair's attributes, or null.
    const Port* port = nullptr;
    /// Index of the queue pair's own device.
    unsigned own_device = 0;
    /// The queue pair is RC or UC, its peer is on this host, and port is not null.
    bool short_path = false;
    /// Addresses of this host and of the peer's host; all zeros if the peer is on this host.
    fabric::Route route;
    fabric::Connection* connection = nullptr;
    /// Requests before this position send their data in packets, because a direct copy has failed.
    std::uint64_t records_until = 0;
    /// Number of direct copies that have failed since the last one that succeeded.
    unsigned failed_fetches = 0;
    /// Number of packets sent on the connection, up to the latest one that offered memory for a
    /// direct copy (Connection::sent()).
    std::uint64_t offered = 0;
    /// UD: a connection that stayed full until the timer expired. Datagrams to it are dropped until
    /// its Connection::taken() differs from closed_since.
    const fabric::Connection* closed_lane = nullptr;
    /// UD: the value of Connection::taken() when the wait for room began.
    std::uint64_t closed_since = 0;
    bool stalled = false; // in Engine::Implementation::stalled: the lane is full
    bool timed = false;   // in Engine::Implementation::timed: deadline is not 0
};

/// Responder state of a queue pair. The engine maintains it.
struct Responder {
    std::uint32_t expected_psn = 0;
    /// Some packets of a message have arrived, but not the last one.
    bool in_message = false;
    /// Number of bytes of this message that have arrived.
    std::uint64_t received = 0;
    /// The receive request of the current or next message, once it was taken from the queue.
    RecvRequest current{};
    bool current_taken = false;
    /// Shared receive queue with tags: the current message has matched a tagged buffer.
    bool matched = false;
    /// Shared receive queue with tags: opcode of the completion of the current message.
    ibv_wc_opcode tag_opcode = IBV_WC_TM_NO_TAG;
    /// Shared receive queue with tags: tag in the header of the current message.
    __be64 tag = 0;
    /// Shared receive queue with tags: user data in the header of the current message.
    __be32 tag_data = 0;
    /// A NAK for the current gap in the sequence was sent.
    bool gap_reported = false;
    /// IBV_EVENT_COMM_EST was raised.
    bool established = false;
    /// The result of an executed atomic. It is kept to respond to a retransmission of the request.
    struct Atomic {
        std::uint32_t psn = 0;
        std::uint64_t value = 0;
    };
    std::array<Atomic, 16> atomics{};
    std::size_t atomics_done = 0;
};

/// A queue pair. An ibv_qp* of it points to qp_base.
struct Qp : ibv_qp_ex {
    ibv_qp_init_attr_ex init{};
    ibv_qp_attr attributes{}; // as ibv_query_qp() returns it
    /// The state of the queue pair. As with libibverbs, ibv_qp::state is a copy of it that only
    /// ibv_modify_qp() and ibv_query_qp() update.
    ibv_qp_state current_state = IBV_QPS_RESET;
    bool signal_all = false;
    bool extended = false; // created with send_ops_flags
    Cq* send_queue = nullptr;
    Cq* recv_queue = nullptr;
    Srq* shared_queue = nullptr;

    /// Memory of the rings, if the allocator of a parent domain provided it.
    QueueMemory memory;
    /// Allocated when the first request is posted.
    Ring<SendRequest> sends;
    std::vector<ibv_sge> send_entries;   // cap.max_send_sge entries for each slot
    std::vector<std::byte> inline_bytes; // cap.max_inline_data bytes for each slot
    Ring<RecvRequest> receives;

    /// Lock of ibv_wr_*(). A thread holds it from wr_start() to wr_complete() or wr_abort(), and
    /// other threads that post wait, as with hardware providers. It is locked before Process::lock.
    std::mutex batch_lock;
    /// The requests of the batch are in the slots from sends.end() to this position. No other
    /// thread accesses these slots, so they are written without Process::lock.
    std::uint64_t batch_end = 0;
    /// All send queue slots before this position are free.
    std::uint64_t batch_limit = 0;
    /// The errno of the first error in the batch; 0: none.
    int batch_error = 0;

    Requester requester;
    Responder responder;
    std::uint32_t unacknowledged = 0;  // see acknowledgements.hpp
    unsigned windows = 0;              // number of type 2B windows bound to it
    bool last_receive_flushed = false; // IBV_EVENT_QP_LAST_WQE_REACHED was raised

    /// IBV_QPT_XRC_RECV only; see xrc_domain.hpp. In a handle, which ibv_create_qp_ex() or
    /// ibv_open_qp() returns: the target queue pair, which receives the messages. Null in a target.
    Qp* target = nullptr;
    /// In a target queue pair: all its handles.
    std::vector<Qp*> handles;
    XrcDomain* domain = nullptr;
    Xrcd* xrcd = nullptr;

    [[nodiscard]] ibv_qp* native() noexcept { return &qp_base; }
    [[nodiscard]] static Qp& of(ibv_qp* qp) noexcept { return *reinterpret_cast<Qp*>(qp); }
    [[nodiscard]] static Qp& of(ibv_qp_ex* qp) noexcept { return static_cast<Qp&>(*qp); }
    [[nodiscard]] std::uint32_t number() const noexcept { return qp_base.qp_num; }
    [[nodiscard]] ibv_qp_state state() const noexcept { return current_state; }
    [[nodiscard]] ibv_qp_type type() const noexcept { return qp_base.qp_type; }
    [[nodiscard]] bool is_reliable() const noexcept { return softverbs::is_reliable(type()); }
    /// The protection domain that work requests are checked against.
    [[nodiscard]] Pd& pd() const noexcept { return *static_cast<Pd*>(qp_base.pd)->protection; }
    /// The protection domain of receive requests: that of the shared receive queue, if there is
    /// one.
    [[nodiscard]] Pd& receive_pd() const noexcept {
        return shared_queue != nullptr ? *static_cast<Pd*>(shared_queue->pd)->protection : pd();
    }
    [[nodiscard]] std::span<ibv_sge> entries(std::uint64_t position) noexcept {
        return {send_entries.data() + sends.place(position) * init.cap.max_send_sge,
                sends[position].entries};
    }
    /// Returns the first entry of entries(), before their number is set.
    [[nodiscard]] ibv_sge* entries_at(std::uint64_t position) noexcept {
        return send_entries.data() + sends.place(position) * init.cap.max_send_sge;
    }
    [[nodiscard]] std::byte* inline_data(std::uint64_t position) noexcept {
        return inline_bytes.data() + sends.place(position) * init.cap.max_inline_data;
    }
};

// The functions below implement the verbs of the same name. The caller holds Process::lock; see
// memory.hpp.

/// Allocates the rings of a new queue pair with the allocator of its parent domain. Call it without
/// Process::lock.
[[nodiscard]] int obtain_memory(Context& context, const ibv_qp_init_attr_ex& attributes,
                                QueueMemory& memory);
[[nodiscard]] Qp* create_qp(Context& context, ibv_qp_init_attr_ex& attributes, QueueMemory& memory);
[[nodiscard]] int modify_qp(Qp& qp, const ibv_qp_attr& attributes, int mask);
/// Stores the rate limit for ibv_query_qp(). The send rate does not change.
[[nodiscard]] int modify_rate_limit(Qp& qp, const ibv_qp_rate_limit_attr& limit);
void query_qp(const Qp& qp, ibv_qp_attr& attributes, ibv_qp_init_attr& init);
/// Implements ibv_destroy_qp(). It locks Process::lock itself, because it waits until all events
/// are acknowledged.
[[nodiscard]] int destroy_qp(Qp& qp);

[[nodiscard]] int obtain_memory(Context& context, const ibv_srq_init_attr_ex& attributes,
                                QueueMemory& memory);
[[nodiscard]] Srq* create_srq(Context& context, const ibv_srq_init_attr_ex& attributes,
                              QueueMemory& memory);
[[nodiscard]] int modify_srq(Srq& srq, const ibv_srq_attr& attributes, int mask);
void query_srq(const Srq& srq, ibv_srq_attr& attributes);
/// Implements ibv_destroy_srq(). It locks Process::lock itself, because it waits until all events
/// are acknowledged.
[[nodiscard]] int destroy_srq(Srq& srq);

/// Checks that a port of the device can send to this address. Returns 0 or EINVAL.
[[nodiscard]] int check_address(Device& device, const ibv_ah_attr& address);
[[nodiscard]] Ah* create_ah(Pd& pd, const ibv_ah_attr& attributes);
[[nodiscard]] int destroy_ah(Ah& ah);

// Data path functions for ibv_context_ops and ibv_qp_ex. They lock Process::lock themselves.
int post_send(ibv_qp* native, ibv_send_wr* request, ibv_send_wr** bad);
int post_recv(ibv_qp* native, ibv_recv_wr* request, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* native, ibv_recv_wr* request, ibv_recv_wr** bad);
int bind_mw(ibv_qp* native, ibv_mw* mw, ibv_mw_bind* bind);
int poll_cq(ibv_cq* native, int entries, ibv_wc* completions);
int req_notify_cq(ibv_cq* native, int solicited_only);
/// Sets the function pointers of ibv_wr_*().
void set_work_request_functions(Qp& qp);

/// Takes the next receive request for a message to @p qp, from its own queue or from its SRQ.
/// Raises the SRQ limit event if necessary. Returns false if the queue is empty.
[[nodiscard]] bool take_receive(Qp& qp, RecvRequest& request);

/// Returns the receive request that take_receive() would take, and leaves it in the queue. Returns
/// null if the queue is empty, or if taking a request would raise the SRQ limit event.
[[nodiscard]] const RecvRequest* next_receive(Qp& qp) noexcept;
/// Removes the receive request that next_receive() returned.
void consume_receive(Qp& qp) noexcept;

/// Moves the queue pair to the error state, and completes all outstanding requests in order with
/// IBV_WC_WR_FLUSH_ERR. The caller has already completed the request that failed.
/// @param event  asynchronous event to raise for the queue pair; negative: none
void enter_error(Qp& qp, int event = -1);
/// Moves an unreliable queue pair to IBV_QPS_SQE after a failed send: the send queue is flushed,
/// and receiving goes on.
void enter_send_queue_error(Qp& qp);
/// Removes the oldest send request, and pushes a completion if the request is signaled or has
/// failed. If the completion queue overruns, the queue pair enters the error state and its send
/// queue is flushed. Therefore the caller must read the state and the send queue again after the
/// call.
void complete_send(Qp& qp, ibv_wc_status status, std::uint32_t byte_len = 0,
                   std::uint32_t vendor_error = 0);
/// Completes all requests of the send queue with IBV_WC_WR_FLUSH_ERR.
void flush_sends(Qp& qp);
/// Completes all requests of the queue pair's own receive queue with IBV_WC_WR_FLUSH_ERR.
void flush_receives(Qp& qp);
/// Ends draining if the state is IBV_QPS_SQD and no request is in flight. Raises
/// IBV_EVENT_SQ_DRAINED if the program has enabled it.
void end_draining(Qp& qp);
/// Pushes a completion to the receive CQ, with the queue pair number filled in.
void complete_receive(Qp& qp, const Completion& completion);
/// Frees the slot of a receive request that a message in progress took from the shared receive
/// queue, when the queue pair is reset or destroyed.
void release_current_receive(Qp& qp) noexcept;
/// Frees the queue slots that a completion covers. Called when the program has polled the
/// completion.
void release_slots(const Completion& completion) noexcept;
/// Raises an asynchronous event of the queue pair.
void raise_event(Qp& qp, ibv_event_type type);

} // namespace softverbs
