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
#include "objects/qp_table.hpp"

namespace softverbs {

namespace fabric {
class Connection;
}
struct ScatterToCqe; // scatter_to_cqe.hpp
enum class ScatterRequest : std::uint8_t;
struct XrcDomain; // xrc_domain.hpp
struct Xrcd;
struct TagList; // tag_matching.hpp
struct Srd;     // srd.hpp

inline constexpr std::size_t max_sge = 16;
inline constexpr std::uint32_t max_inline = 1024;
inline constexpr std::uint32_t psn_mask = 0xffffff;

/// Returns whether the queue pair type is RC or XRC. Returns false for SRD, which is also reliable,
/// but is treated as a datagram type.
[[nodiscard]] constexpr bool is_reliable(ibv_qp_type type) noexcept {
    return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

/// Returns whether each send request names its destination with an address handle. This is true for
/// UD and for SRD, whose queue pairs have the type IBV_QPT_DRIVER.
[[nodiscard]] constexpr bool is_datagram(ibv_qp_type type) noexcept {
    return type == IBV_QPT_UD || type == IBV_QPT_DRIVER;
}

/// An address handle. A posted request contains a copy of its attributes, so that the program can
/// destroy the address handle at any time.
struct Ah : ibv_ah {
    Ah() : ibv_ah{} {}
    ibv_ah_attr attributes{};
    /// The address handle number. Only with the device profile efa; see find_ah_number().
    std::uint16_t number = 0;
};

struct SendRequest {
    std::uint64_t wr_id = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    unsigned flags = 0; // IBV_SEND_*
    __be32 imm_data = 0;
    /// IBV_WR_SEND_WITH_INV and IBV_WR_LOCAL_INV: the rkey to invalidate. IBV_WR_BIND_MW for a type
    /// 2 window: ibv_mw::rkey when the request was posted.
    std::uint32_t invalidate_rkey = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t rkey = 0;
    std::uint64_t compare_add = 0;
    std::uint64_t swap = 0;
    // The destination of the request; only for UD and SRD. For XRC, remote_qkey is the number of
    // the shared receive queue.
    ibv_ah_attr destination{};
    std::uint32_t remote_qpn = 0;
    std::uint32_t remote_qkey = 0;
    // The memory window to be bound; only for IBV_WR_BIND_MW. The member "rkey" is then the new key
    // of the window.
    Mw* window = nullptr;
    ibv_mw_bind_info bind{};

    /// Number of scatter/gather entries. The entries are stored in Qp::send_entries. Inline data is
    /// stored in Qp::inline_bytes instead, and that of an atomic write in the member "swap".
    std::uint32_t entries = 0;
    bool is_inline = false;
    /// Total length of the request's data in bytes.
    std::uint64_t length = 0;

    // The engine, which executes the requests, sets the following members.
    enum class State : std::uint8_t { waiting, sending, sent, done };
    State state = State::waiting;
    /// For an RDMA read: true if this process copies the data directly from memory of the
    /// responder's process, and false if response packets contain the data.
    bool fetches = false;
    /// Packet sequence number. In softverbs, each request has one number, even if its data needs
    /// several packets.
    std::uint32_t psn = 0;
    /// For a read: number of bytes of the request that were received. Otherwise: number of bytes of
    /// the request that were sent.
    std::uint64_t offset = 0;
    /// For a read: number of bytes that this process has requested from the responder.
    std::uint64_t requested = 0;
    /// The number of request packets that were sent on the connection (Connection::sent()) up to
    /// the last packet of this request. If the peer process has consumed fewer packets
    /// (Connection::taken()), it has not processed this request completely, so it cannot have
    /// responded.
    std::uint64_t record = 0;

    /// Prepares this entry of the send queue for a new request. The members that are not reset here
    /// may keep old values, because each request sets those that it uses.
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
        fetches = false;
        psn = 0;
        offset = 0;
        requested = 0;
        record = 0;
    }
};

struct RecvRequest {
    std::uint64_t wr_id = 0;
    std::uint32_t entries = 0;
    std::array<ibv_sge, max_sge> entry{};

    [[nodiscard]] std::span<const ibv_sge> list() const noexcept { return {entry.data(), entries}; }
    /// Returns the length of the longest message that the buffers can hold, in bytes.
    [[nodiscard]] std::uint64_t capacity() const noexcept {
        std::uint64_t sum = 0;
        for (const ibv_sge& buffer : list()) {
            sum += buffer.length;
        }
        return sum;
    }
};

/// The work requests of a queue. The memory is allocated when the first request is posted, because
/// programs may create thousands of queue pairs and use few of them.
///
/// A send request is removed with pop() when it completes, and a receive request when a message
/// takes it. The queue entry is freed later, with free() or free_until(), when the program has
/// polled a completion for this request or for a later one. Therefore a program that does not poll
/// gets ENOMEM when all queue entries are occupied, as with a NIC.
template <class Request>
class Ring {
  public:
    explicit Ring(std::size_t capacity = 0) noexcept : capacity_(capacity) {}
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    /// Returns the number of entries in the ring: the capacity of the queue, rounded up to a power
    /// of two so that place() is fast.
    [[nodiscard]] std::size_t places() const noexcept { return std::bit_ceil(capacity_); }
    /// Returns the number of requests that were not removed yet with pop().
    [[nodiscard]] std::size_t size() const noexcept {
        return static_cast<std::size_t>(end_ - first_);
    }
    [[nodiscard]] bool empty() const noexcept { return first_ == end_; }
    /// Returns the number of queue entries that are not free: those of requests that were not
    /// removed with pop(), and those of removed requests whose completion the program has not
    /// polled.
    [[nodiscard]] std::size_t occupied() const noexcept {
        return static_cast<std::size_t>(end_ - freed_);
    }
    [[nodiscard]] bool full() const noexcept { return occupied() == capacity_; }
    /// Returns the position of the oldest request that was not removed with pop(). The position of
    /// a request is the number of requests that were added before it.
    [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
    /// Returns the position of the next request to be added.
    [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
    /// Returns the position before which requests can be added: the queue entries from position
    /// end() up to the position before limit() are free.
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
    /// Allocates the entries of the queue. Must be called before the first request is added. Throws
    /// std::bad_alloc.
    /// @param memory  memory for the entries; if it is too small, the ring allocates memory itself
    void allocate(std::span<std::byte> memory = {}) {
        if (memory.size() < places() * sizeof(Request)) {
            own_.resize(places());
            slots_ = own_;
        } else {
            slots_ = {reinterpret_cast<Request*>(memory.data()), places()};
            std::uninitialized_value_construct(slots_.begin(), slots_.end());
        }
    }
    /// Returns the number of bytes of memory that allocate() needs.
    [[nodiscard]] std::size_t bytes() const noexcept {
        return capacity_ == 0 ? 0 : places() * sizeof(Request);
    }
    [[nodiscard]] bool allocated() const noexcept { return !slots_.empty(); }
    /// Adds an entry at the end of the queue and returns it. The entry still contains an old
    /// request. The queue must not be full.
    Request& push() noexcept { return slots_[place(end_++)]; }
    /// Adds the requests from position end() up to the position before @p position. The caller must
    /// have written them to their queue entries.
    void publish(std::uint64_t position) noexcept { end_ = position; }
    void pop() noexcept { ++first_; }
    /// Frees one queue entry: the oldest one that is not free.
    void free() noexcept { ++freed_; }
    /// Frees the queue entries of all requests before @p position. All of them must be completed.
    void free_until(std::uint64_t position) noexcept { freed_ = std::max(freed_, position); }
    /// In a new queue, marks @p count entries as occupied by completed requests.
    void occupy(std::size_t count) noexcept { first_ = end_ = first_ + count; }
    /// Removes all requests and frees their queue entries.
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
    /// If fewer requests than this limit remain after a message has taken one,
    /// IBV_EVENT_SRQ_LIMIT_REACHED is raised and the limit is set to 0. If the limit is 0, no event
    /// is raised.
    std::uint32_t limit = 0;
    unsigned users = 0;
    std::uint32_t unacknowledged = 0; // see acknowledgements.hpp
    QueueMemory memory;
    /// The XRC domain; only for IBV_SRQT_XRC.
    Xrcd* xrcd = nullptr;
    /// The number with which senders select this shared receive queue; only for IBV_SRQT_XRC.
    std::uint32_t number = 0;
    /// The tagged buffers; only for IBV_SRQT_TM. See tag_matching.hpp.
    std::shared_ptr<TagList> tags;
    /// The completion queue for the receive completions; only for IBV_SRQT_XRC and IBV_SRQT_TM.
    Cq* queue = nullptr;
};

/// The ECE options of new queue pairs with the profile mlx5. The bits have no meaning. NICs have
/// others, which are not documented.
inline constexpr std::uint32_t supported_ece_options = 0x7;

/// The state of the requester of a queue pair. The engine updates it.
struct Requester {
    /// Position in the send queue of the first request that was not sent completely. The requests
    /// between sends.first() and this position were sent, but have not completed.
    std::uint64_t next = 0;
    std::uint32_t next_psn = 0;
    unsigned reads_in_flight = 0; // including atomics
    /// The number of reads and atomics whose response has arrived, while the response of an earlier
    /// read or atomic is missing. The responder must still keep their results.
    unsigned finished_early = 0;
    /// Number of reads in flight whose data this process copies directly from memory of the
    /// responder's process. Later requests that could change this memory wait for these reads.
    unsigned fetches_in_flight = 0;
    unsigned retries_left = 0;
    unsigned rnr_retries_left = 0;
    /// Time at which the timer of the requester expires, in nanoseconds of fabric::now_ns(), or 0
    /// if the timer is not set. When it expires, the requester checks for a timeout or, if
    /// waiting_for_receiver is set, retransmits after an RNR NAK. On a UD queue pair, the timer
    /// ends the wait for room in a ring.
    std::uint64_t deadline = 0;
    bool waiting_for_receiver = false;
    /// Whether a response has arrived since the timer of the requester was set. If so, the
    /// expiration of the timer is not a timeout.
    bool progressed = false;
    /// Send requests before this position in the send queue request an ACK when they are
    /// retransmitted.
    std::uint64_t resent_until = 0;
    /// Position in the send queue after the last request that has requested an ACK. The timeout
    /// applies only to requests before this position.
    std::uint64_t ack_requested_until = 0;
    /// For a connected queue pair: index (from 0) of the device of this host that has the
    /// destination address. device_by_address: a device of another host has the address. -1: the
    /// address is unknown.
    int device = -1;
    /// The port of this queue pair, or null if ibv_modify_qp() has not set it. ibv_modify_qp() sets
    /// this member and the next four members, so that a small message can be sent quickly.
    const Port* port = nullptr;
    /// Index (from 0) of the device to which this queue pair belongs.
    unsigned own_device = 0;
    /// Whether small requests of this queue pair can be sent with short packet headers: the queue
    /// pair is RC or UC, its peer is on this host, and max_msg_sz of its port is at least
    /// small_message bytes.
    bool short_path = false;
    /// The first byte of each short packet header that this queue pair sends or receives.
    std::uint8_t short_form = 0;
    /// Whether "short_path" is true and the remote queue pair belongs to this process.
    bool to_this_process = false;
    /// The addresses of this host and of the peer's host. Zeros if the peer is on this host.
    fabric::Route route;
    fabric::Connection* connection = nullptr;
    /// The data of requests before this position in the send queue is transferred in packets,
    /// because a direct copy between memory of this process and of the peer has failed.
    std::uint64_t records_until = 0;
    /// Number of direct copies (see records_until) that have failed since the last successful one.
    /// After a failure, the data of the next 2^failed_fetches requests is transferred in packets.
    /// Therefore the number does not increase above 20. A copy of the data of an RDMA read that
    /// failed because the responder had invalidated the address (Copy::withdrawn) does not count.
    unsigned failed_fetches = 0;
    /// The value of Connection::sent() (number of request packets sent on the connection) after the
    /// last packet that contained segments, which are addresses of data in memory of this process.
    std::uint64_t offered = 0;
    /// For UD: a connection that stayed full until the timer expired, because the peer process
    /// consumes no packets. Datagrams for this connection are dropped until the peer consumes
    /// packets again: then Connection::taken() is no longer equal to "closed_since".
    const fabric::Connection* closed_lane = nullptr;
    /// For UD: the value of Connection::taken() (number of request packets that the peer process
    /// has consumed) when the requester began to wait for room in the connection.
    std::uint64_t closed_since = 0;
    bool stalled = false; // in Engine::Implementation::stalled: the connection is full
    bool timed = false;   // in Engine::Implementation::timed: deadline is not 0
};

/// The state of the responder of a queue pair. The engine updates it.
struct Responder {
    std::uint32_t expected_psn = 0;
    /// Whether the first packet of a message has arrived, but not the last one.
    bool in_message = false;
    /// For a request whose data this process copies directly from memory of the sender in several
    /// parts: number of bytes copied so far, the connection on which the request arrived, and its
    /// packet sequence number.
    std::uint64_t copied = 0;
    const fabric::Connection* copied_from = nullptr;
    std::uint32_t copied_psn = 0;
    /// Number of bytes of the current message that have arrived. Valid if "in_message" is true.
    std::uint64_t received = 0;
    /// The receive request of the current message. Valid if "current_taken" is true.
    RecvRequest current{};
    bool current_taken = false;
    /// For a shared receive queue with tag matching: whether the current message has matched a
    /// tagged buffer.
    bool matched = false;
    /// For a shared receive queue with tag matching: the opcode for the completion of the current
    /// message.
    ibv_wc_opcode tag_opcode = IBV_WC_TM_NO_TAG;
    /// The tag in the header of the current message. Valid if "matched" is true.
    __be64 tag = 0;
    /// The user data in the header of the current message. Valid if "matched" is true.
    __be32 tag_data = 0;
    /// True if a gap in the packet sequence numbers of received packets causes no NAK, because a
    /// NAK was already sent for this gap, or because the gap follows an RNR NAK.
    bool gap_reported = false;
    /// Whether IBV_EVENT_COMM_EST was raised for this queue pair.
    bool established = false;
    /// Whether an ACK is delayed: the latest request was executed and did not request an ACK.
    bool ack_pending = false;
    bool ack_listed = false; // in Engine::Implementation::ack_pending
    /// The connection for the delayed ACK: the connection on which the request has arrived. Null: a
    /// queue pair of this process has sent the request. Valid if "ack_pending" is true.
    fabric::Connection* ack_connection = nullptr;
    /// The result of an atomic. If the requester retransmits the request, this result is sent
    /// again, and the atomic is not executed again.
    struct Atomic {
        std::uint32_t psn = 0;
        std::uint64_t value = 0;
    };
    std::array<Atomic, 16> atomics{};
    std::size_t atomics_done = 0;
};

/// A queue pair. The ibv_qp that the program uses is the member qp_base.
struct Qp : ibv_qp_ex {
    Qp();
    ~Qp();
    Qp(const Qp&) = delete;
    Qp& operator=(const Qp&) = delete;

    ibv_qp_init_attr_ex init{};
    ibv_qp_attr attributes{}; // as ibv_query_qp() returns it, except the state
    /// The state of the queue pair. ibv_qp::state is a copy, which only ibv_modify_qp() and
    /// ibv_query_qp() update, as in libibverbs.
    ibv_qp_state current_state = IBV_QPS_RESET;
    bool signal_all = false;
    bool extended = false; // created with send_ops_flags
    Cq* send_queue = nullptr;
    Cq* recv_queue = nullptr;
    Srq* shared_queue = nullptr;

    /// Memory for the work requests of the queue pair, if the allocator of a parent domain has
    /// provided it.
    QueueMemory memory;
    /// The send queue. It is allocated when the first request is posted.
    Ring<SendRequest> sends;
    std::vector<ibv_sge> send_entries;   // cap.max_send_sge entries for each slot
    std::vector<std::byte> inline_bytes; // cap.max_inline_data bytes for each slot
    Ring<RecvRequest> receives;

    /// Locked from ibv_wr_start() to ibv_wr_complete() or ibv_wr_abort(), and by ibv_post_send()
    /// and ibv_bind_mw(). Other threads that post send requests wait, as with hardware providers. A
    /// thread that takes both locks must take batch_lock before Process::lock.
    std::mutex batch_lock;
    /// The entries of the send queue from position sends.end() up to the position before this one
    /// contain the requests of the current batch of ibv_wr_*() calls. No other thread uses these
    /// entries, so they are written without Process::lock.
    std::uint64_t batch_end = 0;
    /// The entries of the send queue from position batch_end up to the position before this one are
    /// free. The batch of ibv_wr_*() calls can use them.
    std::uint64_t batch_limit = 0;
    /// The first error in the batch of ibv_wr_*() calls, as an errno. 0: no error.
    int batch_error = 0;

    /// State of scatter-to-CQE: small payloads are copied when their completions are polled. Null
    /// if the queue pair does not use scatter-to-CQE.
    std::unique_ptr<ScatterToCqe> scatter_to_cqe;
    /// State of an SRD queue pair. Null for all other types.
    std::unique_ptr<Srd> srd;

    Requester requester;
    Responder responder;
    std::uint32_t unacknowledged = 0;  // see acknowledgements.hpp
    unsigned windows = 0;              // number of type 2 windows bound on this queue pair
    bool last_receive_flushed = false; // IBV_EVENT_QP_LAST_WQE_REACHED was raised

    /// For a handle of an XRC target queue pair (see xrc_domain.hpp): the target queue pair, which
    /// receives the messages. Otherwise null.
    Qp* target = nullptr;
    /// For an XRC target queue pair: its handles, which are the queue pairs that ibv_create_qp_ex()
    /// and ibv_open_qp() have returned to the program.
    std::vector<Qp*> handles;
    XrcDomain* domain = nullptr;
    Xrcd* xrcd = nullptr;

    /// For a device with ECE: the options that ibv_query_ece() returns.
    std::uint32_t ece_options = 0;
    /// The options that ibv_set_ece() has set, until the next ibv_modify_qp() applies them. 0:
    /// none.
    std::uint32_t requested_ece_options = 0;

    [[nodiscard]] ibv_qp* native() noexcept { return &qp_base; }
    [[nodiscard]] static Qp& of(ibv_qp* qp) noexcept { return *reinterpret_cast<Qp*>(qp); }
    [[nodiscard]] static Qp& of(ibv_qp_ex* qp) noexcept { return static_cast<Qp&>(*qp); }
    [[nodiscard]] std::uint32_t number() const noexcept { return qp_base.qp_num; }
    [[nodiscard]] ibv_qp_state state() const noexcept { return current_state; }
    [[nodiscard]] ibv_qp_type type() const noexcept { return qp_base.qp_type; }
    [[nodiscard]] bool is_reliable() const noexcept { return softverbs::is_reliable(type()); }
    /// Returns the protection domain for access checks of send requests and of the peer's requests.
    [[nodiscard]] Pd& pd() const noexcept { return *static_cast<Pd*>(qp_base.pd)->protection; }
    /// Returns the protection domain for access checks of receive requests. If the queue pair uses
    /// a shared receive queue, this is the protection domain of the shared receive queue.
    [[nodiscard]] Pd& receive_pd() const noexcept {
        return shared_queue != nullptr ? *static_cast<Pd*>(shared_queue->pd)->protection : pd();
    }
    [[nodiscard]] std::span<ibv_sge> entries(std::uint64_t position) noexcept {
        return {entries_at(position), sends[position].entries};
    }
    /// Returns the scatter/gather entries of the send request at this position, like
    /// entries().data(). Can be called before the number of these entries is set.
    [[nodiscard]] ibv_sge* entries_at(std::uint64_t position) noexcept {
        return send_entries.data() + sends.place(position) * init.cap.max_send_sge;
    }
    [[nodiscard]] std::byte* inline_data(std::uint64_t position) noexcept {
        return inline_bytes.data() + sends.place(position) * init.cap.max_inline_data;
    }
};

inline Qp* QpTable::find(std::uint32_t number) const noexcept {
    const std::size_t index = number & ((1U << index_bits()) - 1);
    Qp* const qp = index < qps_.size() ? qps_[index] : nullptr;
    return qp != nullptr && qp->number() == number ? qp : nullptr;
}

// Most of these functions implement verbs with similar names; create_qp() implements
// ibv_create_qp(). The caller must hold Process::lock, except as noted.

/// Obtains the memory for the work requests of a new queue pair from the allocator of its parent
/// domain, if there is one. Returns 0 or ENOMEM. The caller must not hold Process::lock.
[[nodiscard]] int obtain_memory(Context& context, const ibv_qp_init_attr_ex& attributes,
                                QueueMemory& memory);
/// Creates a queue pair, and stores its capacities in attributes.cap.
/// @param scatter  the setting in mlx5dv_create_qp(), which can enable or disable scatter-to-CQE
/// @param is_srd  whether the queue pair, whose type is IBV_QPT_DRIVER, is an SRD queue pair
[[nodiscard]] Qp* create_qp(Context& context, ibv_qp_init_attr_ex& attributes, QueueMemory& memory,
                            ScatterRequest scatter = {}, bool is_srd = false);
[[nodiscard]] int modify_qp(Qp& qp, const ibv_qp_attr& attributes, int mask);
/// Stores the rate limit of the queue pair, which ibv_query_qp() returns. The limit has no effect
/// on the send rate.
[[nodiscard]] int modify_rate_limit(Qp& qp, const ibv_qp_rate_limit_attr& limit);
void query_qp(const Qp& qp, ibv_qp_attr& attributes, ibv_qp_init_attr& init);
/// The ECE options (enhanced connection establishment) of the profile mlx5 have no effect on the
/// queue pair. For other profiles, query_ece() and set_ece() return EOPNOTSUPP.
[[nodiscard]] int query_ece(const Qp& qp, ibv_ece& ece);
[[nodiscard]] int set_ece(Qp& qp, const ibv_ece& ece);
/// Implements ibv_destroy_qp(). The caller must not hold Process::lock: the function takes it, and
/// releases it while it waits for acknowledgements of events.
[[nodiscard]] int destroy_qp(Qp& qp);

/// Like obtain_memory() above, for a shared receive queue. The caller must not hold Process::lock.
[[nodiscard]] int obtain_memory(Context& context, const ibv_srq_init_attr_ex& attributes,
                                QueueMemory& memory);
[[nodiscard]] Srq* create_srq(Context& context, const ibv_srq_init_attr_ex& attributes,
                              QueueMemory& memory);
[[nodiscard]] int modify_srq(Srq& srq, const ibv_srq_attr& attributes, int mask);
void query_srq(const Srq& srq, ibv_srq_attr& attributes);
/// Implements ibv_destroy_srq(). The caller must not hold Process::lock: the function takes it, and
/// releases it while it waits for acknowledgements of events.
[[nodiscard]] int destroy_srq(Srq& srq);

/// Checks the attributes of an address (ibv_ah_attr) for a device. Returns 0 or EINVAL.
[[nodiscard]] int check_address(Device& device, const ibv_ah_attr& address);
[[nodiscard]] Ah* create_ah(Pd& pd, const ibv_ah_attr& attributes);
[[nodiscard]] int destroy_ah(Ah& ah);
/// Returns the AH number that the address handles of the protection domain with the destination GID
/// @p gid share, or efa::unknown_ah if none has this GID.
[[nodiscard]] std::uint16_t find_ah_number(const Pd& pd, const ibv_gid& gid) noexcept;

// Functions of the data path, for ibv_context_ops. They take Process::lock themselves.
int post_send(ibv_qp* native, ibv_send_wr* request, ibv_send_wr** bad);
int post_recv(ibv_qp* native, ibv_recv_wr* request, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* native, ibv_recv_wr* request, ibv_recv_wr** bad);
int bind_mw(ibv_qp* native, ibv_mw* mw, ibv_mw_bind* bind);
int poll_cq(ibv_cq* native, int entries, ibv_wc* completions);
int req_notify_cq(ibv_cq* native, int solicited_only);
/// Sets the pointers of the ibv_wr_*() functions in ibv_qp_ex.
void set_work_request_functions(Qp& qp);

/// Removes the next receive request from the receive queue of @p qp, or from its shared receive
/// queue. Raises IBV_EVENT_SRQ_LIMIT_REACHED if fewer requests than the SRQ limit remain. Returns
/// false if the queue is empty.
[[nodiscard]] bool take_receive(Qp& qp, RecvRequest& request);

/// Returns the receive request that take_receive() would remove, without removing it. Returns null
/// if the queue is empty, if the shared receive queue matches tags, or if its SRQ limit is set.
[[nodiscard]] const RecvRequest* next_receive(Qp& qp) noexcept;
/// Removes the receive request that next_receive() has returned.
void consume_receive(Qp& qp) noexcept;

/// Moves the queue pair to the error state. Flushes its send queue and then its receive queue, each
/// in the order in which the requests were posted. Does not flush a shared receive queue, but
/// raises IBV_EVENT_QP_LAST_WQE_REACHED, except for an XRC target. Does nothing if the queue pair
/// is already in the error state. If a request has failed, the caller must complete this request
/// before the call.
/// @param event  asynchronous event to be raised; negative: none
void enter_error(Qp& qp, int event = -1);
/// Moves a UC or UD queue pair from the state RTS or SQD to the state SQE after a send has failed,
/// and flushes its send queue. The queue pair can still receive. Does nothing in other states.
void enter_send_queue_error(Qp& qp);
/// Removes the oldest request from the send queue. If it is signaled or has failed, pushes a
/// completion to the send completion queue or, for a request of a rendezvous, calls
/// complete_rendezvous() instead. If the completion queue overruns, the queue pair enters the error
/// state and its send queue is flushed. Therefore the caller must check the state and the send
/// queue after this call.
void complete_send(Qp& qp, ibv_wc_status status, std::uint32_t byte_len = 0);
/// Completes all send requests that have not completed with IBV_WC_WR_FLUSH_ERR, and calls
/// Engine::flushed().
void flush_sends(Qp& qp);
/// Completes the receive request of an incomplete message and all requests in the receive queue
/// with IBV_WC_WR_FLUSH_ERR. Does not flush a shared receive queue.
void flush_receives(Qp& qp);
/// If the queue pair is in the state SQD and all send requests that it has begun to send have
/// completed, ends draining. Raises IBV_EVENT_SQ_DRAINED if the program has requested it.
void end_draining(Qp& qp);
/// Pushes @p completion to the receive completion queue of @p qp, after it has set the members that
/// depend on the queue pair.
/// @param data  see push()
void complete_receive(Qp& qp, Completion completion, const Scatter* data = nullptr);
/// Removes the completions of the queue pair that were not polled, and unbinds its type 2 windows.
/// If a message was received only partly, frees the entry of its receive request in the shared
/// receive queue. Called when the queue pair is reset or destroyed.
void forget_work(Qp& qp);
/// Frees the queue entry of the work request of this completion and, in a send queue, the entries
/// of earlier requests (not on an SRD queue pair). For a completion of ibv_post_srq_ops(),
/// decrements TagList::operations. Called when the completion was polled or removed.
void release_slots(const Completion& completion) noexcept;
/// Raises an asynchronous event of the queue pair. For an XRC target, raises one event for each of
/// its handles.
void raise_event(Qp& qp, ibv_event_type type);
/// Returns whether there are completions of the queue pair with this number that the program has
/// not polled. Returns false if there is no such queue pair, or if its state is not RTR, RTS or
/// SQD.
[[nodiscard]] bool has_unpolled_completions(std::uint32_t qp_number);

} // namespace softverbs
