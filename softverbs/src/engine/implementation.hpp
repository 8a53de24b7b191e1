// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.hpp"
#include "engine/entry_list.hpp"
#include "engine/packet.hpp"
#include "fabric/clock.hpp"
#include "fabric/node.hpp"
#include "fabric/ring.hpp"
#include "objects/queue_pair.hpp"
#include "objects/srd.hpp"

namespace softverbs {

/// Maximum length in bytes of a small message. The data of a small message is sent in packets,
/// written by write_directly(), or delivered by deliver_short(). For a longer message, if possible,
/// a packet contains only the addresses of the data, and the receiver copies the data from memory
/// of the sender: one copy instead of two, but slower for small messages. The value is a power of
/// two plus some bytes for a header of a higher protocol.
inline constexpr std::size_t small_message = 8192 + 256;
/// Maximum length in bytes of an RDMA write that the requester executes by copying the data into
/// memory of the other process. For longer data, it is faster if the responder copies the data.
inline constexpr std::size_t longest_direct_write = std::size_t{64} * 1024;
/// Maximum number of data bytes in a packet. The ring in shared memory between two processes has
/// space for several such packets.
inline constexpr std::size_t record_payload = std::size_t{16} * 1024;
/// If the data of an RDMA read is sent in packets: the maximum number of bytes that the requester
/// has requested and not yet received. For an SRD request: also the maximum number of bytes that
/// were sent and not yet acknowledged. The value should exceed the bandwidth-delay product between
/// hosts, so that the round-trip time does not limit long reads.
inline constexpr std::size_t read_window = 32 * record_payload;
/// Maximum number of bytes of a long message that one call of copy_step() copies from memory of the
/// sender. Process::lock is held during the copy.
inline constexpr std::size_t copy_step_bytes = std::size_t{1} << 20U;

/// A packet to be sent: a header, and buffers that contain the payload.
struct Outgoing {
    Outgoing() noexcept {} // NOLINT: segments is not initialised, to save time

    PacketHeader header{};
    std::array<std::span<const std::byte>, max_sge + 1> parts{}; // parts[0] is the header
    std::size_t count = 1;
    std::array<fabric::Segment, max_sge> segments; // filled by describe()

    /// Makes the first @p number elements of the array "segments" the payload of this packet. Each
    /// segment is the address and the length of data in memory of the sender.
    void set_segments(std::size_t number);
    [[nodiscard]] std::span<const std::span<const std::byte>> all() {
        parts[0] = std::as_bytes(std::span(&header, 1));
        return {parts.data(), count};
    }
};

/// The state of a connection to another process.
struct Peer {
    enum class Share : std::uint8_t { offered, ready, refused };
    std::unordered_map<std::uint32_t, Share> shares;
    /// Whether the peer may still copy data from memory of this process, because a read response to
    /// this peer contained the address of the data in place of the data.
    bool may_fetch_responses = false;
};

/// While a DrainScope exists, Implementation::drain() does nothing. Otherwise, drain() could
/// process a packet between queue pairs of this process while another packet is still being
/// processed.
class DrainScope {
  public:
    explicit DrainScope(bool& draining) noexcept : draining_(draining) { draining = true; }
    ~DrainScope() { draining_ = false; }
    DrainScope(const DrainScope&) = delete;
    DrainScope& operator=(const DrainScope&) = delete;

  private:
    bool& draining_;
};

struct Engine::Implementation : fabric::Handler {
    // Functions in transmit.cpp, which send packets:

    /// If the destination queue pair @p number belongs to this process, sets @p connection to null.
    /// Otherwise, connects to the process of the queue pair if @p connection is null. If it is not
    /// null, it must be a connection to that process. Returns false if the process does not exist
    /// or cannot be reached.
    [[nodiscard]] bool reach(std::uint32_t number, const fabric::Route& route,
                             fabric::Connection*& connection);
    /// Sends a packet. If a planned fault (an error that the test configuration injects) selects
    /// this packet, drops, delays, duplicates or corrupts it. Otherwise, SOFTVERBS_DISORDER (a test
    /// setting) can delay it. Returns Sent::sent for a packet that was dropped or delayed.
    /// @param to  connection to the receiving process; null: this process
    fabric::Sent transmit(fabric::Connection* to, fabric::Lane lane, Outgoing& packet);
    fabric::Sent put(fabric::Connection* to, fabric::Lane lane, Outgoing& packet);
    /// Queues a packet between queue pairs of this process. If memory is exhausted, the packet is
    /// lost.
    void append_local(fabric::Lane lane,
                      std::span<const std::span<const std::byte>> parts) noexcept;
    void delay(fabric::Connection* to, fabric::Lane lane, Outgoing& packet, std::uint64_t due,
               std::uint32_t source = 0);
    /// Returns whether a delayed packet may still be sent. Returns false for a packet with the flag
    /// to_fetch if its queue pair is neither in the state RTS nor SQD, if its request is no longer
    /// in flight, or, for a read response, if the memory may no longer be read. Returns true for
    /// all other packets.
    [[nodiscard]] static bool still_holds(std::span<const std::byte> record);
    /// Stores the addresses of the memory ranges @p windows in @p segments. The receiver of the
    /// packet can then copy the data directly from this memory. Returns the number of segments, or
    /// 0 if the receiver cannot access the memory, or cannot access it yet.
    [[nodiscard]] std::size_t describe(fabric::Connection* to, fabric::Lane lane,
                                       std::span<const Window> windows,
                                       std::span<fabric::Segment> segments);
    /// Invalidates the memory addresses that this queue pair has sent in its requests, and those of
    /// other queue pairs that use the same connection. Does nothing if there is no connection, or
    /// if the peer process has consumed all requests that contain addresses. A responder then no
    /// longer uses data from this memory, so the program may change the memory.
    static void withdraw_requests(Qp& qp) noexcept;

    // Functions in receive.cpp, which process received packets. If the connection "from" is null,
    // this process has sent the packet.

    [[nodiscard]] bool on_request(fabric::Connection& from,
                                  std::span<const std::byte> record) override;
    void on_response(fabric::Connection& from, std::span<const std::byte> record) override;
    void on_room(fabric::Connection& to) override;
    void on_closed(fabric::Connection& connection) override;
    void on_shared(fabric::Connection& to, std::uint32_t share, int error) override;
    /// Processes the packets that queue pairs of this process have sent to queue pairs of this
    /// process. Does nothing if another call is already processing packets.
    void drain() {
        if (local_first != local_end && !draining) {
            drain_local();
        }
    }
    void drain_local();
    /// Processes a received packet. Returns false if the packet contains addresses of its data, and
    /// the data is not copied completely yet. The caller must then call the function again for this
    /// packet.
    [[nodiscard]] bool receive(fabric::Connection* from, fabric::Lane lane,
                               std::span<const std::byte> record);

    // Delivers a received multicast datagram to all queue pairs of this process that are attached
    // to the destination GID (multicast.cpp).
    void receive_multicast(fabric::Connection* from, const Packet& packet);

    // Function in responder.cpp:

    /// Processes a received request packet. Returns false as receive() does.
    [[nodiscard]] bool handle_request(Qp& qp, fabric::Connection* from, const Packet& packet);

    // Functions in requester_ack.cpp:

    /// Processes a received response packet. Returns false as receive() does.
    [[nodiscard]] bool handle_response(Qp& qp, fabric::Connection* from, const Packet& packet);
    /// Processes a received NAK. Returns true if the queue pair cannot send requests now, for
    /// example because it must wait for the RNR timer.
    [[nodiscard]] bool handle_nak(Qp& qp, const PacketHeader& header);

    // Functions in requester.cpp, which send requests:

    /// Sends the posted requests of a queue pair until all were sent, or until a request must wait
    /// or fails.
    void run(Qp& qp);
    void run_all();
    /// Makes the agent (background) thread call run_all() soon. Called when an allocation failed in
    /// run() or during the processing of packets.
    void run_later() noexcept;
    /// Prepares the retransmission of all requests of the queue pair that are in flight. The next
    /// run() sends them.
    void resend(Qp& qp);
    /// Counts a retransmission after a timeout, after a NAK for a missing packet, or after a lost
    /// response. Returns false if the limit retry_cnt is reached; the oldest request has then
    /// failed with IBV_WC_RETRY_EXC_ERR.
    [[nodiscard]] bool may_retry(Qp& qp);
    /// If may_retry() returns true, prepares the retransmission of all requests in flight. Returns
    /// the result of may_retry().
    [[nodiscard]] bool retry(Qp& qp);
    /// Prepares the retransmission of all requests in flight, because the receiver could not copy
    /// the data of a request from memory of the sender. The retransmitted packets contain the data.
    /// @param withdrawn  true if the copy failed because the sender has invalidated the address,
    ///     for example by deregistration. If false, the packets of some later requests also contain
    ///     the data
    void resend_as_records(Qp& qp, bool withdrawn);
    /// Removes a closed connection from the queue pair. Resets the packet numbers of this
    /// connection that are stored in the queue pair and in its requests.
    static void disconnect(Qp& qp) noexcept;
    /// Completes the oldest request in the send queue with an error, and moves the queue pair to
    /// the error state. Does nothing if the send queue is empty, or if the queue pair is already in
    /// this state.
    void fail_oldest(Qp& qp, ibv_wc_status status);

    // Functions in srd_requester.cpp and srd_responder.cpp, for queue pairs of the type SRD:

    /// Sends or delays (see send_all_held()) the posted requests of an SRD queue pair, and
    /// continues the requests in Srd::blocked. Called by run().
    void run_srd(Qp& qp);
    /// Sends all posted requests that SRD queue pairs delay. The delay changes the order of
    /// requests, because SRD does not guarantee an order.
    void send_all_held();
    void expired_srd(Qp& qp);
    /// Starts the request numbers of an SRD queue pair at its send PSN, and sets a new Srd::epoch
    /// and the seed of Srd::random. Called when the queue pair goes from the state RTR to the state
    /// RTS.
    static void start_srd(Qp& qp) noexcept;
    /// Removes the closed @p connection from the requests of an SRD queue pair. The next run()
    /// retransmits those of them that are in SrdRequest::State::sent.
    static void disconnect_srd(Qp& qp, const fabric::Connection& connection);
    void handle_srd_response(Qp& qp, const Packet& packet);
    void handle_srd_request(Qp& qp, fabric::Connection* from, const Packet& packet);
    /// Sends a NAK for a received SRD request whose destination queue pair does not exist or is not
    /// an SRD queue pair.
    void reject_srd_request(fabric::Connection* from, const Packet& packet);
    /// The SRD queue pairs that currently delay posted requests; see send_all_held().
    std::vector<Qp*> holding;
    /// Removes the connections from the requester and the responder of the queue pair and from its
    /// SRD requests, and cancels its delayed ACK. Called when all connections are closed: at the
    /// end of the process, and after fork(2).
    static void forget_connections(Qp& qp) noexcept;
    /// Forgets all connections of this process to other processes.
    void forget_peers();

    // Functions in short_send.cpp and short_receive.cpp, the fast path for small requests:

    /// Sends the next posted request of the queue pair if the request is small enough for the fast
    /// path. Returns false and changes nothing if the fast path cannot be used; OutboundRequest
    /// must then send the request.
    [[nodiscard]] bool send_short(Qp& qp);
    /// Delivers a small request from @p qp to a queue pair of this process, without a ring in
    /// shared memory.
    /// @param position  position of the request in the send queue
    void deliver_short(Qp& qp, std::uint64_t position, ShortHeader& header,
                       std::span<const std::byte> data);
    /// Completes the requests in the send queue up to and including @p position, because the
    /// responder has executed them. Must not be called while a read or an atomic is in flight.
    static void acknowledged(Qp& qp, std::uint64_t position);
    void send_ack(Qp& qp, fabric::Connection* to, std::uint32_t psn);
    /// Executes an RDMA write by copying the data directly into memory of the other process, which
    /// has permitted this with grant_writes(). Returns false if this is not possible; the request
    /// must then be sent as a packet.
    /// @param parts  the data
    [[nodiscard]] bool write_directly(Qp& qp, SendRequest& request, fabric::RecordParts parts);
    /// Calls write_directly() for the next posted request of the queue pair. Unlike send_short(),
    /// accepts data in several scatter/gather entries, and up to longest_direct_write bytes.
    [[nodiscard]] bool write_long_directly(Qp& qp);
    /// Permits another process to execute later RDMA writes to a memory region directly, without a
    /// packet. Does nothing if the memory permits no direct writes, for example that of a memory
    /// window. Called after this process has executed an RDMA write that arrived as a packet.
    /// @param source  number of the queue pair of the other process
    /// @param rkey  the key of the memory region
    void grant_writes(const Qp& qp, fabric::Connection& to, std::uint32_t source,
                      std::uint32_t rkey);
    /// Executes a received request with a short header. Returns false and changes nothing if the
    /// fast path cannot be used; InboundRequest must then execute the request.
    [[nodiscard]] bool receive_short(fabric::Connection* from, std::span<const std::byte> record);
    [[nodiscard]] bool execute_short(fabric::Connection* from, const ShortHeader& header,
                                     std::span<const std::byte> data);
    /// Processes a received ACK with a short header. Returns false and changes nothing if the fast
    /// path cannot be used, for example if a read is in flight; receive() must then process the
    /// ACK.
    [[nodiscard]] bool receive_short_ack(fabric::Connection* from,
                                         std::span<const std::byte> record);

    // Functions in acknowledge.cpp, for delayed ACKs of requests that did not request an ACK:

    /// Delays the ACK of a request that a reliable queue pair has executed and that did not request
    /// an ACK. acknowledge() sends it later.
    void defer_ack(Qp& qp, fabric::Connection* from) noexcept {
        qp.responder.ack_pending = true;
        qp.responder.ack_connection = from;
        if (!qp.responder.ack_listed) [[unlikely]] {
            list_ack(qp);
        }
    }
    void list_ack(Qp& qp) noexcept;
    /// Sends the delayed ACK of a queue pair, if it has one.
    void acknowledge(Qp& qp);
    /// Sends the delayed ACKs of the queue pairs in the list ack_pending.
    void acknowledge_all();
    /// Waits for at most 1 second until the other processes have consumed the packets of this
    /// process. Called when the process exits. The reason: with a NIC, packets that were sent
    /// arrive even if the sender exits. With softverbs, another process can accept a connection and
    /// receive its packets only while this process exists.
    /// @param lock  holds Process::lock; released during the wait
    void wait_until_consumed(std::unique_lock<Lock>& lock);

    // Functions in disorder.cpp, which implements the test setting SOFTVERBS_DISORDER:

    /// Returns the time until which SOFTVERBS_DISORDER (a test setting) delays a packet from the
    /// queue pair whose number is @p source, in nanoseconds of fabric::now_ns(). 0: the packet is
    /// not delayed.
    [[nodiscard]] std::uint64_t late_until(fabric::Lane lane, std::uint32_t source);
    /// Sends the packets that SOFTVERBS_DISORDER (a test setting) still delays.
    /// @param source  number of the queue pair whose packets are sent; 0: all queue pairs
    void send_late_packets(std::uint32_t source);
    void hold_write(const Window& window, std::uint64_t offset, std::span<const std::byte> bytes);
    /// Executes all received RDMA writes that SOFTVERBS_DISORDER (a test setting) still delays.
    void release_writes() {
        if (!held_writes.empty()) [[unlikely]] {
            release_held_writes();
        }
    }
    void release_held_writes();

    // Functions in timers.cpp, for timeouts and delays:

    /// Sets the timer of the queue pair, which expires at @p deadline (nanoseconds of
    /// fabric::now_ns()).
    void set_deadline(Qp& qp, std::uint64_t deadline);
    /// Makes the timer of the queue pair expire at @p deadline or earlier.
    void set_timer_before(Qp& qp, std::uint64_t deadline);
    /// Sets the timer of the queue pair, which expires after @p after_ns nanoseconds.
    void set_timer(Qp& qp, std::uint64_t after_ns) {
        set_deadline(qp, fabric::now_ns() + after_ns);
    }
    /// Sets the timer of the queue pair to the time for which the requester waits for a response.
    /// For a reliable queue pair, the attribute "timeout" determines this time.
    void start_timer(Qp& qp);
    void run_timers(std::uint64_t now);
    void expired(Qp& qp);
    void deliver_delayed(std::uint64_t now);
    void raise_moderated(std::uint64_t now);
    /// Returns whether a datagram for which the ring to the destination process has no room should
    /// wait; if so, sets a timer. Returns false if the datagram should be dropped, because that
    /// process has consumed no packets since an earlier wait.
    [[nodiscard]] bool worth_waiting(Qp& qp);
    /// Returns when the next timer or delay ends, in nanoseconds of fabric::now_ns(). 0: none.
    [[nodiscard]] std::uint64_t next_deadline() const noexcept;

    // Functions in agent.cpp, for the agent thread (a background thread):

    void agent();
    /// Does one cycle of the agent thread: calls run_all() if runs_all is true, handles socket
    /// events, receives packets, runs the timers that have expired at @p now, and, unless planned
    /// faults affect packets, sends delayed ACKs. Does not wait. Returns the number of packets that
    /// came from other processes. Throws std::bad_alloc; packets may then be lost.
    unsigned run_agent_once(std::uint64_t now);
    /// Returns whether run_agent_once() has work that does not depend on other processes: queued
    /// packets, delayed ACKs, an expired timer, or a call of run_all().
    [[nodiscard]] bool has_work(std::uint64_t now) const noexcept;
    void wake_agent_before(std::uint64_t deadline);
    /// Processes packets between queue pairs of this process, and at most 64 packets that have
    /// arrived from other processes. Does not wait. Returns the number of processed packets that
    /// came from other processes.
    unsigned work();

    void forget(Qp& qp);

    std::unique_ptr<fabric::Node> node;
    /// Whether the last run_agent_once() has handled a socket event.
    bool serviced = false;
    unsigned slot = 0;
    std::unique_ptr<std::thread> thread;
    bool stopping = false;
    /// Whether the next run_agent_once() must call run_all(), because memory was exhausted.
    bool runs_all = false;
    /// State of the agent (background) thread: running (awake), sleeping for a short time because
    /// the program polls (napping), or sleeping until an event or a timer (asleep).
    enum class Agent : std::uint8_t { awake, napping, asleep };
    Agent agent_state = Agent::awake;
    /// Time at which the sleep of the agent thread ends, in nanoseconds of fabric::now_ns(). 0: no
    /// limit. Valid while the thread sleeps.
    std::uint64_t agent_wakes_at = 0;
    bool program_sleeps = false;
    std::uint64_t polls = 0;

    std::vector<Qp*> timed;
    std::vector<Qp*> stalled;
    /// Queue pairs that may have a delayed ACK. The agent (background) thread sends these ACKs in
    /// its next cycle in which no planned faults affect packets.
    std::vector<Qp*> ack_pending;
    unsigned waiting_for_receivers = 0;

    /// A queued packet between queue pairs of this process. The memory of its member "record" is
    /// reused for later packets.
    struct Local {
        fabric::Lane lane = fabric::Lane::requests;
        std::vector<std::byte> record;
    };
    std::vector<Local> local;
    std::size_t local_first = 0; // index of the first packet
    std::size_t local_end = 0;   // index after the last packet
    bool draining = false;

    // Functions in copying.cpp: the receiver copies the data of a long message from memory of the
    // sender, at most copy_step_bytes at a time, so that other threads can call verbs in the
    // meantime.

    // "withdrawn": the sender has invalidated the address of the data. "ignored": the packet has no
    // effect, because it is not valid now or its data could not be stored; copy_step() does not
    // return this value.
    enum class Copy : std::uint8_t { complete, incomplete, withdrawn, failed, ignored };
    /// Copies the next part of the data of a received packet from memory of the sender.
    /// @param done  the number of bytes that were copied before; the function increases it
    [[nodiscard]] Copy copy_step(const EntryList& to, fabric::Connection* from, fabric::Lane lane,
                                 const Packet& packet, std::uint64_t& done);
    /// For a packet between queue pairs of this process: returns whether the receiver may still
    /// copy the data from memory of the sender. This memory must belong to a request in flight, or,
    /// for a read response, to a region that the requester may read.
    [[nodiscard]] static bool is_still_offered(const Packet& packet);
    /// Queues a received packet. Called if data of this packet must still be copied from memory of
    /// the sender, or if the packet must wait for such a packet.
    void set_aside(fabric::Connection* from, fabric::Lane lane, std::span<const std::byte> record);
    /// Processes a packet between queue pairs of this process. Queues the packet with set_aside()
    /// if its data must still be copied from memory of the sender, or if must_wait() is true.
    void deliver_local(fabric::Lane lane, std::span<const std::byte> record);
    /// Returns whether a packet between queue pairs of this process must wait, because set_aside()
    /// has queued an earlier one in the same lane to the same queue pair.
    [[nodiscard]] bool must_wait(fabric::Lane lane, std::span<const std::byte> record) const;
    /// Continues to copy the data of the packets that set_aside() has queued. Processes each packet
    /// after its data is copied completely, and then the packets that waited for it.
    void continue_copies();
    /// Returns whether set_aside() has queued a packet from or to this queue pair.
    [[nodiscard]] bool is_copying(const Qp& qp) const;

    /// A packet that set_aside() has queued.
    struct SetAside {
        fabric::Connection* from;
        fabric::Lane lane;
        std::vector<std::byte> record;
        std::uint32_t source;
        std::uint32_t destination;
    };
    std::deque<SetAside> set_asides;
    /// True if a copy of the data of a received packet from memory of the sender was not completed
    /// since the last call of work() began.
    bool copying = false;
    /// Number of bytes that may still be copied from memory of senders until posted(), work() or
    /// continue_copies() sets this number again. The last call of copy_step() may exceed it.
    std::uint64_t copy_budget = 0;

    struct Delayed {
        std::uint64_t due;
        fabric::Connection* to;
        fabric::Lane lane;
        std::vector<std::byte> record;
        std::uint32_t source = 0; // SOFTVERBS_DISORDER: queue pair of the packet; otherwise 0
    };
    std::vector<Delayed> delayed;
    /// Sends delayed packets. If SOFTVERBS_DISORDER (a test setting) has delayed a packet, and the
    /// packet does not fit into its ring now, adds the packet to `delayed` again. A packet that a
    /// planned fault has delayed is lost in this case.
    void send_delayed(std::vector<Delayed> due, std::uint64_t now);

    /// A received RDMA write that SOFTVERBS_DISORDER (a test setting) delays. Its target memory
    /// stays valid, because all delayed writes are executed before a region is deregistered.
    struct HeldWrite {
        std::uint64_t due;
        Window window;
        std::uint64_t offset;
        std::vector<std::byte> bytes;
    };
    std::vector<HeldWrite> held_writes;
    std::size_t held_bytes = 0;

    /// A completion event that the event moderation of a completion queue (ibv_modify_cq()) delays.
    struct ModeratedEvent {
        std::uint64_t due;
        Cq* cq;
    };
    std::vector<ModeratedEvent> moderated;

    std::unordered_map<fabric::Connection*, Peer> peers;
    fabric::Connection* last_peer = nullptr;
    /// Connections to processes that may execute RDMA writes by copying data directly into memory
    /// of this process, or that have not yet finished such a copy.
    std::vector<fabric::Connection*> granted;

    /// Prints an error on stderr, because the destination queue pair with the number @p number
    /// belongs to no process. The usual cause is a peer with another SOFTVERBS_DIR. Prints nothing
    /// if this process was connected to a process with the slot of the queue pair earlier: that
    /// process has ended, which is not an error of the user. Also prints nothing if this function
    /// has printed such an error before.
    void report_missing_process(std::uint32_t number);
    std::set<unsigned> slots_seen;
    bool missing_process_reported = false;
};

/// Time in nanoseconds after which a request without a response is retransmitted for the first
/// time. The time doubles with each retransmission.
inline constexpr std::uint64_t first_srd_timeout_ns = 16'000'000;
/// Sends packets of the SRD request with the number @p number until all its data was sent, the
/// request must wait, or its destination cannot be reached. If the request fails, completes it with
/// an error. Does nothing if the request has already completed.
void transmit_srd(Engine::Implementation& engine, Qp& qp, std::uint64_t number);

} // namespace softverbs
