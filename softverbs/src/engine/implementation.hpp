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
#include "objects/queue_pair.hpp"

namespace softverbs {

/// Maximum length in bytes of messages whose data is sent in packets. For a longer message, the
/// packet contains only the address of the data, and the receiver copies the data from memory of
/// the sender. This is one copy instead of two, but is slower for small messages. The value is a
/// power of two plus some bytes for a header of a higher protocol.
inline constexpr std::size_t small_message = 8192 + 256;
/// Maximum number of data bytes in a packet. The ring of a connection has space for several such
/// packets.
inline constexpr std::size_t record_payload = std::size_t{16} * 1024;
/// Maximum number of bytes of an RDMA read that are requested and have not arrived, if the data is
/// sent in packets. The value is large enough for the round-trip time between hosts.
inline constexpr std::size_t read_window = 32 * record_payload;
/// Maximum number of bytes of a message that the receiver copies from memory of the sender at a
/// time, because Process::lock is held during the copy.
inline constexpr std::size_t copy_step_bytes = std::size_t{1} << 20U;

/// A packet to be sent: a header, and buffers that contain the payload.
struct Outgoing {
    Outgoing() noexcept {} // NOLINT: segments is not initialised, to save time

    PacketHeader header{};
    std::array<std::span<const std::byte>, max_sge + 1> parts{}; // parts[0] is the header
    std::size_t count = 1;
    std::array<fabric::Segment, max_sge> segments; // set by set_segments()

    /// Makes the first @p number elements of the array "segments" the payload of the packet. Each
    /// segment is an address of data in memory of the sender.
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
    /// Whether the peer may still copy data from memory of this process. This is so if a read
    /// response carried the address of the data in place of the data.
    bool may_fetch_responses = false;
};

/// While a DrainScope exists, drain() does nothing. Without it, a packet between queue pairs of
/// this process could be processed in the middle of the processing of another packet.
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

    /// Finds the process of the queue pair @p number. Sets @p connection to the connection to the
    /// process that was found, or to null if the queue pair belongs to this process. Returns false
    /// if the process does not exist or cannot be reached.
    [[nodiscard]] bool reach(std::uint32_t number, const fabric::Route& route,
                             fabric::Connection*& connection);
    /// Sends a packet. If a fault is planned for this packet, applies the fault.
    /// @param to  connection to the receiving process; null: this process
    fabric::Sent transmit(fabric::Connection* to, fabric::Lane lane, Outgoing& packet);
    fabric::Sent put(fabric::Connection* to, fabric::Lane lane, Outgoing& packet);
    /// Queues a packet from one queue pair of this process to another one. If memory is exhausted,
    /// the packet is lost.
    void append_local(fabric::Lane lane,
                      std::span<const std::span<const std::byte>> parts) noexcept;
    void delay(fabric::Connection* to, fabric::Lane lane, Outgoing& packet, std::uint64_t due,
               std::uint32_t source = 0);
    /// For a delayed packet that contains the address of its data: returns whether the memory at
    /// this address is still valid. Returns true for other packets.
    [[nodiscard]] static bool still_holds(std::span<const std::byte> record);
    /// Stores the addresses of the memory in @p segments, so that the receiver of a packet can copy
    /// the data directly from this memory. Returns the number of segments, or 0 if the receiver
    /// cannot access the memory.
    [[nodiscard]] std::size_t describe(fabric::Connection* to, fabric::Lane lane,
                                       std::span<const Window> windows,
                                       std::span<fabric::Segment> segments);
    /// Invalidates the memory addresses in the requests of this queue pair that are in flight.
    /// Responders then copy no data from this memory, so that the program may change it.
    static void withdraw_requests(Qp& qp) noexcept;

    // Functions in receive.cpp, which process received packets. A null connection means this
    // process.

    [[nodiscard]] bool on_request(fabric::Connection& from,
                                  std::span<const std::byte> record) override;
    void on_response(fabric::Connection& from, std::span<const std::byte> record) override;
    void on_room(fabric::Connection& to) override;
    void on_closed(fabric::Connection& connection) override;
    void on_shared(fabric::Connection& to, std::uint32_t share, int error) override;
    /// Processes the packets that this process has sent to its own queue pairs. Does nothing in a
    /// nested call.
    void drain() {
        if (local_first != local_end && !draining) {
            drain_local();
        }
    }
    void drain_local();
    /// Processes a packet. Returns false if the packet contains addresses of its data and the data
    /// is not copied completely yet; the caller must then call the function again for this packet.
    [[nodiscard]] bool receive(fabric::Connection* from, fabric::Lane lane,
                               std::span<const std::byte> record);

    // Delivers a multicast datagram to all queue pairs of this process that are attached to the
    // destination GID (multicast.cpp).
    void receive_multicast(fabric::Connection* from, const Packet& packet);

    // Function in responder.cpp:

    /// Processes a request packet. Returns false if the data of the packet is not copied completely
    /// yet; the caller must then call the function again for this packet.
    [[nodiscard]] bool handle_request(Qp& qp, fabric::Connection* from, const Packet& packet);

    // Functions in requester_ack.cpp:

    /// Processes a response packet. Returns false if the data of the packet is not copied
    /// completely yet; the caller must then call the function again for this packet.
    [[nodiscard]] bool handle_response(Qp& qp, fabric::Connection* from, const Packet& packet);
    /// Processes a NAK. Returns true if the queue pair cannot send requests now, for example
    /// because of an RNR delay.
    [[nodiscard]] bool handle_nak(Qp& qp, const PacketHeader& header);

    // Functions in requester.cpp, which send requests:

    /// Sends requests of a queue pair until its send queue is empty or a request must wait.
    void run(Qp& qp);
    /// Calls run() for all queue pairs.
    void run_all();
    /// Called when memory was exhausted in run() or during the processing of packets. Makes the
    /// agent thread call run_all() soon.
    void run_later() noexcept;
    /// Prepares the retransmission of all requests in flight. The next run() sends them.
    void resend(Qp& qp);
    /// Prepares the retransmission of all requests in flight after a NAK that requests it. The
    /// attribute retry_cnt limits the number of retransmissions after such NAKs and after timeouts.
    /// Returns false if the limit is reached; the oldest request has then failed with
    /// IBV_WC_RETRY_EXC_ERR.
    [[nodiscard]] bool retry(Qp& qp);
    /// Prepares the retransmission of all requests in flight after the receiver could not copy the
    /// data of a request from memory of the sender. The retransmitted packets contain the data.
    /// @param withdrawn  true if the copy failed because the memory was withdrawn, for example by
    ///     deregistration. If false, the packets of some later requests also contain the data
    void resend_as_records(Qp& qp, bool withdrawn);
    /// Removes a closed connection from the queue pair. Resets the packet numbers of this
    /// connection that the queue pair and its requests have stored.
    static void disconnect(Qp& qp) noexcept;
    /// Returns whether the request with this packet sequence number is in flight.
    [[nodiscard]] static bool awaits(Qp& qp, std::uint32_t psn);
    /// Completes all requests in flight of a UC queue pair without waiting for a response.
    void give_up_responses(Qp& qp);
    /// Completes the oldest request with an error, and moves the queue pair to the error state.
    void fail_oldest(Qp& qp, ibv_wc_status status);

    // Functions in srd_requester.cpp and srd_responder.cpp, for queue pairs of the type SRD:

    /// Sends the posted requests of an SRD queue pair. Other queue pairs use run().
    void run_srd(Qp& qp);
    /// Sends all requests that SRD queue pairs hold back in order to send requests in a random
    /// order.
    void send_all_held();
    void expired_srd(Qp& qp);
    /// Called when an SRD queue pair enters the state RTS for the first time.
    static void start_srd(Qp& qp) noexcept;
    /// Called when @p connection was closed. Retransmits the requests of the SRD queue pair that
    /// were in flight on this connection.
    void disconnect_srd(Qp& qp, const fabric::Connection& connection);
    void handle_srd_response(Qp& qp, const Packet& packet);
    void handle_srd_request(Qp& qp, fabric::Connection* from, const Packet& packet);
    /// Sends a NAK for a request whose destination queue pair does not exist.
    void reject_srd_request(fabric::Connection* from, const Packet& packet);
    /// The SRD queue pairs that hold requests back in order to send requests in a random order.
    std::vector<Qp*> holding;
    /// Removes all references of the queue pair to connections. Called when all connections are
    /// closed: at the end of the process, and after fork(2).
    static void forget_connections(Qp& qp) noexcept;

    // Functions in short_send.cpp and short_receive.cpp, the fast path for small requests:

    /// Sends the next request of the queue pair if it is small enough for the fast path. Returns
    /// false and changes nothing if the fast path cannot be used; OutboundRequest must then send
    /// the request.
    [[nodiscard]] bool send_short(Qp& qp);
    /// Delivers a small request to another queue pair of this process, without a ring in shared
    /// memory.
    void deliver_short(Qp& qp, std::uint64_t position, ShortHeader& header,
                       std::span<const std::byte> data);
    /// Completes the requests in the send queue up to and including @p position. The responder has
    /// executed these requests. Must not be called while a read or an atomic is in flight.
    static void acknowledged(Qp& qp, std::uint64_t position);
    void send_ack(Qp& qp, fabric::Connection* to, std::uint32_t psn);
    /// Executes an RDMA write by copying the data into memory of the other process, which has
    /// permitted this with grant_writes(). Returns false if this is not possible; the request must
    /// then be sent as a packet.
    [[nodiscard]] bool write_directly(Qp& qp, SendRequest& request,
                                      std::span<const std::byte> data);
    /// Called after an RDMA write from another process was executed. Permits that process to
    /// execute further writes to the same memory region directly, without a packet.
    void grant_writes(const Qp& qp, fabric::Connection& to, const ShortHeader& header);
    /// Executes a received small request. Returns false and changes nothing if the fast path cannot
    /// be used; InboundRequest must then execute the request.
    [[nodiscard]] bool receive_short(fabric::Connection* from, std::span<const std::byte> record);
    [[nodiscard]] bool execute_short(fabric::Connection* from, const ShortHeader& header,
                                     std::span<const std::byte> data);
    /// Processes an ACK with a short header. Returns false and changes nothing if the fast path
    /// cannot be used, for example if a read is in flight; receive() must then process the ACK.
    [[nodiscard]] bool receive_short_ack(fabric::Connection* from,
                                         std::span<const std::byte> record);
    [[nodiscard]] static bool receive_short_send(Qp& qp, const ShortHeader& header,
                                                 std::span<const std::byte> data);
    [[nodiscard]] static bool receive_short_write(Qp& qp, const ShortHeader& header,
                                                  std::span<const std::byte> data);

    // Functions in acknowledge.cpp, for delayed ACKs of requests that did not request an ACK:

    /// Called after a reliable queue pair has executed a request that did not request an ACK.
    /// acknowledge() later sends the ACK.
    void defer_ack(Qp& qp, fabric::Connection* from) noexcept {
        qp.responder.ack_pending = true;
        qp.responder.ack_connection = from;
        if (!qp.responder.ack_listed) [[unlikely]] {
            list_ack(qp);
        }
    }
    void list_ack(Qp& qp) noexcept;
    /// Sends the delayed ACK of a queue pair, if there is one.
    void acknowledge(Qp& qp);
    /// Sends the delayed ACKs of all queue pairs.
    void acknowledge_all();
    /// Called when the process exits. Waits for at most 1 second until the other processes have
    /// consumed the packets of this process. With a NIC, packets that were sent arrive even if the
    /// sender exits. With softverbs, another process can accept a connection and receive its
    /// packets only while this process exists.
    /// @param lock  holds Process::lock; released during the wait
    void wait_until_consumed(std::unique_lock<Lock>& lock);

    // Functions in disorder.cpp, which implements SOFTVERBS_DISORDER:

    /// Returns the time until which SOFTVERBS_DISORDER delays a packet from the queue pair @p
    /// source, in nanoseconds of CLOCK_MONOTONIC. 0: the packet is not delayed.
    [[nodiscard]] std::uint64_t late_until(fabric::Lane lane, std::uint32_t source);
    /// Sends the packets of the queue pair @p source that SOFTVERBS_DISORDER has delayed. If @p
    /// source is 0, sends the delayed packets of all queue pairs.
    void send_late_packets(std::uint32_t source);
    void hold_write(const Qp& qp, const Window& window, std::uint64_t offset,
                    std::span<const std::byte> bytes);
    /// Executes all RDMA writes that SOFTVERBS_DISORDER has delayed.
    void release_writes() {
        if (!held_writes.empty()) [[unlikely]] {
            release_held_writes();
        }
    }
    void release_held_writes();
    void release_writes_due(std::uint64_t now);

    // Functions in timers.cpp, for timeouts and delays:

    /// Sets the timer of the queue pair. It expires after @p after_ns nanoseconds.
    void set_timer(Qp& qp, std::uint64_t after_ns);
    /// Sets the timer of the queue pair, which expires after the time in the attribute "timeout".
    void start_timer(Qp& qp);
    void run_timers(std::uint64_t now);
    void expired(Qp& qp);
    void deliver_delayed(std::uint64_t now);
    void raise_moderated(std::uint64_t now);
    /// Called when a connection is full and a datagram must be sent. Returns true if the datagram
    /// should wait until the connection has room, and sets a timer. Returns false if the datagram
    /// should be dropped, because the other process has consumed no packets since an earlier wait.
    [[nodiscard]] bool worth_waiting(Qp& qp);
    /// Returns the time at which the next timer expires, in nanoseconds of CLOCK_MONOTONIC. 0: no
    /// timer is set.
    [[nodiscard]] std::uint64_t next_deadline() const noexcept;

    // Functions in agent.cpp, for the agent thread:

    void agent();
    void wake_agent_before(std::uint64_t deadline);
    /// Processes received packets without waiting. Returns the number of packets.
    unsigned work();

    void forget(Qp& qp);

    std::unique_ptr<fabric::Node> node;
    unsigned slot = 0;
    std::unique_ptr<std::thread> thread;
    bool stopping = false;
    /// Set by run_later().
    bool runs_all = false;
    /// State of the agent thread: running (awake), sleeping for a short time because the program
    /// polls (napping), or sleeping until an event (asleep).
    enum class Agent : std::uint8_t { awake, napping, asleep };
    Agent agent_state = Agent::awake;
    std::uint64_t agent_wakes_at = 0; // CLOCK_MONOTONIC in nanoseconds; 0: no deadline
    bool program_sleeps = false;
    std::uint64_t polls = 0;

    std::vector<Qp*> timed;
    std::vector<Qp*> stalled;
    /// Queue pairs that may have a delayed ACK. The agent thread sends these ACKs in its next
    /// cycle.
    std::vector<Qp*> ack_pending;
    unsigned waiting_for_receivers = 0;

    /// A packet from one queue pair of this process to another one. The buffer of a processed
    /// packet is reused.
    struct Local {
        fabric::Lane lane = fabric::Lane::requests;
        std::vector<std::byte> record;
    };
    std::vector<Local> local;
    std::size_t local_first = 0;
    std::size_t local_end = 0; // index after the last packet; local_first is that of the first
    bool draining = false;

    // Functions in copying.cpp: the receiver copies long messages from memory of the sender in
    // several steps. Other threads can call verbs between two steps.

    enum class Copy : std::uint8_t { complete, incomplete, withdrawn, failed };
    /// Copies the next part of the data of a packet from memory of the sender.
    /// @param done  the number of bytes that were copied before; the function increases it
    [[nodiscard]] Copy copy_step(const EntryList& to, fabric::Connection* from, fabric::Lane lane,
                                 const Packet& packet, std::uint64_t& done);
    /// For a packet between queue pairs of this process: returns whether its data may still be
    /// copied from memory of the sender. This memory must belong to a request in flight, or to a
    /// region that may be read.
    [[nodiscard]] static bool is_still_offered(const Packet& packet);
    /// Queues a packet whose data must still be copied, or a packet that must wait for such a
    /// packet.
    void set_aside(fabric::Connection* from, fabric::Lane lane, std::span<const std::byte> record);
    /// Processes a packet between queue pairs of this process. Queues it with set_aside() if its
    /// data must still be copied, or if an earlier packet to the same queue pair is queued.
    void deliver_local(fabric::Lane lane, std::span<const std::byte> record);
    /// Returns whether a packet between queue pairs of this process must wait for a packet that
    /// set_aside() has queued.
    [[nodiscard]] bool must_wait(fabric::Lane lane, std::span<const std::byte> record) const;
    /// Copies the next part of the data of each packet that set_aside() has queued. After the last
    /// part, processes this packet and then the packets that waited for it.
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
    /// True if the last call of work() has ended before the data of a packet was completely copied.
    bool copying = false;
    /// Number of bytes that may be copied from memory of senders before Process::lock is released.
    std::uint64_t copy_budget = 0;

    struct Delayed {
        std::uint64_t due;
        fabric::Connection* to;
        fabric::Lane lane;
        std::vector<std::byte> record;
        std::uint32_t source = 0; // SOFTVERBS_DISORDER: queue pair of the packet; otherwise 0
    };
    std::vector<Delayed> delayed;

    /// An RDMA write that SOFTVERBS_DISORDER delays. Its memory stays valid, because delayed writes
    /// are executed before a region is deregistered.
    struct HeldWrite {
        std::uint64_t due;
        std::uint32_t qp_number;
        Window window;
        std::uint64_t offset;
        std::vector<std::byte> bytes;
    };
    std::vector<HeldWrite> held_writes;
    std::size_t held_bytes = 0;

    /// A completion event that the moderation of a completion queue has delayed.
    struct ModeratedEvent {
        std::uint64_t due;
        Cq* cq;
    };
    std::vector<ModeratedEvent> moderated;

    std::unordered_map<fabric::Connection*, Peer> peers;
    fabric::Connection* last_peer = nullptr;
    /// Connections to processes that may execute RDMA writes by writing directly to memory of this
    /// process, or that have not yet finished such a write.
    std::vector<fabric::Connection*> granted;

    /// Prints an error if the destination queue pair number belongs to no process. The usual cause
    /// is a peer with another SOFTVERBS_DIR. Prints nothing if the destination process has ended,
    /// or if the line was printed before.
    void report_missing_process(std::uint32_t number);
    std::set<unsigned> slots_seen;
    bool missing_process_reported = false;
};

} // namespace softverbs
