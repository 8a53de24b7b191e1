// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "objects/completion_queue.hpp"
#include "objects/device.hpp"
#include "objects/memory.hpp"

namespace softverbs {

namespace fabric {
class Connection;
}

inline constexpr std::size_t max_sge = 16;
inline constexpr std::uint32_t max_inline = 1024;
inline constexpr std::uint32_t psn_mask = 0xffffff;

/// Where datagrams go; a copy, so that the address handle may be destroyed once posted.
struct Ah : ibv_ah {
    Ah() : ibv_ah{} {}
    ibv_ah_attr attributes{};
};

/// A request in a send queue.
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
    // Datagrams
    ibv_ah_attr destination{};
    std::uint32_t remote_qpn = 0;
    std::uint32_t remote_qkey = 0;
    // IBV_WR_BIND_MW; the rkey the window gets is in rkey
    Mw* window = nullptr;
    ibv_mw_bind_info bind{};

    /// In Qp::send_entries and Qp::inline_bytes, at this request's place. Inline data is that of
    /// IBV_SEND_INLINE, copied when it was posted.
    std::uint32_t entries = 0;
    bool is_inline = false;
    /// Bytes of data, without those of atomics' results.
    std::uint64_t length = 0;

    // The engine's
    enum class State : std::uint8_t { waiting, sending, sent, done };
    State state = State::waiting;
    /// A part of a read was asked for; the next one is when it has come.
    bool awaiting = false;
    /// A read whose data is fetched from the other process, some time after it has answered.
    bool fetches = false;
    /// Its packet has this sequence number: one each request. Reads and atomics have one as well.
    std::uint32_t psn = 0;
    /// How many bytes went out so far, when they travel in several records.
    std::uint64_t offset = 0;
    /// Connection::sent() after its last record: once that many are taken an answer can be
    /// expected.
    std::uint64_t record = 0;
};

struct RecvRequest {
    std::uint64_t wr_id = 0;
    std::uint32_t entries = 0;
    std::array<ibv_sge, max_sge> entry{};
};

/// A ring of requests that never grows. Its memory comes with the first request, since thousands of
/// queue pairs may be made that hardly do anything.
template <class Request>
class Ring {
  public:
    explicit Ring(std::size_t capacity = 0) noexcept : capacity_(capacity) {}
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    /// As many places as a capacity needs: a power of two, so that finding one is cheap.
    [[nodiscard]] std::size_t places() const noexcept { return std::bit_ceil(capacity_); }
    [[nodiscard]] std::size_t size() const noexcept {
        return static_cast<std::size_t>(end_ - first_);
    }
    [[nodiscard]] bool empty() const noexcept { return first_ == end_; }
    [[nodiscard]] bool full() const noexcept { return size() == capacity_; }
    /// Positions count on and on: first() is the oldest request, end() the one after the newest.
    [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
    [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
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
    /// Before the first use of a slot. Throws std::bad_alloc.
    void allocate() { slots_.resize(places()); }
    [[nodiscard]] bool allocated() const noexcept { return !slots_.empty(); }
    /// Room for one more; only if not full(). What the slot held before is still in it.
    Request& push() noexcept { return slots_[place(end_++)]; }
    /// The slots up to @p position were written, and are requests now.
    void publish(std::uint64_t position) noexcept { end_ = position; }
    void pop() noexcept { ++first_; }
    void clear() noexcept { first_ = end_; }

  private:
    std::size_t capacity_;
    std::vector<Request> slots_;
    std::uint64_t first_ = 0;
    std::uint64_t end_ = 0;
};

struct Srq : ibv_srq {
    Srq() : ibv_srq{} {}
    Ring<RecvRequest> requests;
    std::uint32_t max_sge = 0;
    /// IBV_EVENT_SRQ_LIMIT_REACHED when fewer requests are left; 0: never. Once.
    std::uint32_t limit = 0;
    unsigned users = 0;
    std::uint32_t unacknowledged = 0; // see acknowledgements.hpp
};

/// What a queue pair's requester remembers. The engine's.
struct Requester {
    /// The first request not sent yet, and the first not acknowledged is the ring's first().
    std::uint64_t next = 0;
    std::uint32_t next_psn = 0;
    unsigned reads_in_flight = 0; // and atomics
    /// Those whose data is still to be fetched: what changes memory there has to wait for them.
    unsigned fetches_in_flight = 0;
    unsigned retries_left = 0;
    unsigned rnr_retries_left = 0;
    /// CLOCK_MONOTONIC, nanoseconds: when to send again (waiting_for_receiver), or to look whether
    /// an answer has come. 0: there is nothing to wait for.
    std::uint64_t deadline = 0;
    bool waiting_for_receiver = false;
    /// Something was acknowledged since the timer was set.
    bool progressed = false;
    /// Requests before this position were sent before, and are sent again with a request to answer.
    std::uint64_t resent_until = 0;
    /// The position after the latest request that was sent with a request to answer: who was not
    /// asked is not silent.
    std::uint64_t ack_requested_until = 0;
    /// To a queue pair that is connected: the device it is of, by the address; -1: there is none.
    int device = -1;
    fabric::Connection* connection = nullptr;
    /// Data of requests before this position goes in records, since what was to be fetched could
    /// not be, and how often that has happened.
    std::uint64_t records_until = 0;
    unsigned failed_fetches = 0;
    /// Connection::sent() after the latest record that says what to fetch.
    std::uint64_t offered = 0;
    /// To a datagram queue pair: whose lane is full and stays so, and how many records it had
    /// taken.
    const fabric::Connection* closed_lane = nullptr;
    std::uint64_t closed_since = 0;
    bool stalled = false; // the lane was full: in the engine's list of those who wait for room
    bool timed = false;   // in the engine's list of those with a deadline
};

/// What its responder remembers. The engine's.
struct Responder {
    std::uint32_t expected_psn = 0;
    /// A message of several records is under way: how many bytes of it are here.
    bool in_message = false;
    std::uint64_t received = 0;
    /// The receive request that it, or the next message, goes to.
    RecvRequest current{};
    bool current_taken = false;
    /// The sender was told what is missing, once.
    bool gap_reported = false;
    /// Answers to the latest atomics, for those who ask twice.
    struct Atomic {
        std::uint32_t psn = 0;
        std::uint64_t value = 0;
    };
    std::array<Atomic, 16> atomics{};
    std::size_t atomics_done = 0;
};

struct Qp : ibv_qp_ex { // an ibv_qp* to it is its qp_base
    ibv_qp_init_attr_ex init{};
    ibv_qp_attr attributes{}; // as ibv_query_qp() gives it out
    bool signal_all = false;
    bool extended = false; // made with send_ops_flags
    Cq* send_queue = nullptr;
    Cq* recv_queue = nullptr;
    Srq* shared_queue = nullptr;

    /// These get their memory when they are needed first.
    Ring<SendRequest> sends;
    std::vector<ibv_sge> send_entries;   // cap.max_send_sge for each place
    std::vector<std::byte> inline_bytes; // cap.max_inline_data for each place
    Ring<RecvRequest> receives;

    /// ibv_wr_*: from wr_start() to wr_complete() or wr_abort() its thread holds batch_lock, and
    /// other threads that post wait, as with providers. It is taken before Process::lock. Requests
    /// are written into the slots from sends.end() to batch_end, which nobody else looks at,
    /// without Process::lock. Slots before batch_limit are known to be free.
    std::mutex batch_lock;
    std::uint64_t batch_end = 0;
    std::uint64_t batch_limit = 0;
    int batch_error = 0;

    Requester requester;
    Responder responder;
    std::uint32_t unacknowledged = 0;  // see acknowledgements.hpp
    unsigned windows = 0;              // type 2B windows bound to it
    bool last_receive_flushed = false; // IBV_EVENT_QP_LAST_WQE_REACHED was raised

    [[nodiscard]] ibv_qp* native() noexcept { return &qp_base; }
    [[nodiscard]] static Qp& of(ibv_qp* qp) noexcept { return *reinterpret_cast<Qp*>(qp); }
    [[nodiscard]] static Qp& of(ibv_qp_ex* qp) noexcept { return static_cast<Qp&>(*qp); }
    [[nodiscard]] std::uint32_t number() const noexcept { return qp_base.qp_num; }
    [[nodiscard]] ibv_qp_state state() const noexcept { return qp_base.state; }
    [[nodiscard]] ibv_qp_type type() const noexcept { return qp_base.qp_type; }
    [[nodiscard]] Pd& pd() const noexcept { return *static_cast<Pd*>(qp_base.pd); }
    /// The protection domain of receive requests: that of the shared receive queue, if there is
    /// one.
    [[nodiscard]] Pd& receive_pd() const noexcept {
        return shared_queue != nullptr ? *static_cast<Pd*>(shared_queue->pd) : pd();
    }
    [[nodiscard]] std::span<ibv_sge> entries(std::uint64_t position) noexcept {
        return {send_entries.data() + sends.place(position) * init.cap.max_send_sge,
                sends[position].entries};
    }
    [[nodiscard]] std::byte* inline_data(std::uint64_t position) noexcept {
        return inline_bytes.data() + sends.place(position) * init.cap.max_inline_data;
    }
};

// The verbs, with the lock held; see memory.hpp.

[[nodiscard]] Qp* create_qp(Context& context, ibv_qp_init_attr_ex& attributes);
[[nodiscard]] int modify_qp(Qp& qp, const ibv_qp_attr& attributes, int mask);
void query_qp(const Qp& qp, ibv_qp_attr& attributes, ibv_qp_init_attr& init);
/// Waits until all events are acknowledged, so it takes the lock itself.
[[nodiscard]] int destroy_qp(Qp& qp);

[[nodiscard]] Srq* create_srq(Context& context, const ibv_srq_init_attr_ex& attributes);
[[nodiscard]] int modify_srq(Srq& srq, const ibv_srq_attr& attributes, int mask);
void query_srq(const Srq& srq, ibv_srq_attr& attributes);
/// Waits until all events are acknowledged, so it takes the lock itself.
[[nodiscard]] int destroy_srq(Srq& srq);

/// Whether a device's port can send there: 0, or EINVAL.
[[nodiscard]] int check_address(Device& device, const ibv_ah_attr& address);
[[nodiscard]] Ah* create_ah(Pd& pd, const ibv_ah_attr& attributes);
[[nodiscard]] int destroy_ah(Ah& ah);

// The data path, in ibv_context_ops and ibv_qp_ex: these take the lock themselves.
int post_send(ibv_qp* native, ibv_send_wr* request, ibv_send_wr** bad);
int post_recv(ibv_qp* native, ibv_recv_wr* request, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* native, ibv_recv_wr* request, ibv_recv_wr** bad);
int bind_mw(ibv_qp* native, ibv_mw* mw, ibv_mw_bind* bind);
int poll_cq(ibv_cq* native, int entries, ibv_wc* completions);
int req_notify_cq(ibv_cq* native, int solicited_only);
/// Fills in the functions of ibv_wr_*.
void set_work_request_functions(Qp& qp);

/// The next receive request for a message to @p qp, from its own queue or the shared one; false:
/// there is none. Raises the SRQ's limit event.
[[nodiscard]] bool take_receive(Qp& qp, RecvRequest& request);

/// Into the error state: completes everything outstanding with IBV_WC_WR_FLUSH_ERR, in order. What
/// caused it is completed by the engine before. @p event  raised for the queue pair, unless
/// negative
void enter_error(Qp& qp, int event = -1);
/// After a failed send of an unreliable queue pair: its send queue stops (IBV_QPS_SQE), what is in
/// it is flushed, and it goes on receiving.
void enter_send_queue_error(Qp& qp);
/// Completes the oldest send request: a completion if it was signalled or failed. The completion
/// queue may overrun, which takes the queue pair into the error state: look at both anew.
void complete_send(Qp& qp, ibv_wc_status status, std::uint32_t byte_len = 0,
                   std::uint32_t vendor_error = 0);
/// Completes all send requests, and all receive requests of its own, with IBV_WC_WR_FLUSH_ERR.
void flush_sends(Qp& qp);
void flush_receives(Qp& qp);
/// In IBV_QPS_SQD, with nothing in flight any more: raises IBV_EVENT_SQ_DRAINED, if it was asked
/// for.
void end_draining(Qp& qp);
/// Completes a receive request; the queue pair's number is filled in.
void complete_receive(Qp& qp, const Completion& completion);

} // namespace softverbs
