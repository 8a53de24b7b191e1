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
#include "fabric/node.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// The current time of CLOCK_MONOTONIC, in nanoseconds.
[[nodiscard]] std::uint64_t now_ns() noexcept;

/// Messages of up to this many bytes are sent in packets, because copying them twice takes less
/// time than one direct copy. In a direct copy, the packet contains only the address of the data,
/// and the receiver copies the data from the memory of the sender. The value is a power of two plus
/// room for the header of a protocol above verbs.
inline constexpr std::size_t small_message = 8192 + 256;
/// Maximum number of data bytes in one packet. A connection has room for several packets of this
/// size.
inline constexpr std::size_t record_payload = std::size_t{16} * 1024;

/// A packet to send: the header and the parts of its payload.
struct Outgoing {
    Outgoing() noexcept {} // NOLINT: segments is not initialised, to save time

    PacketHeader header{};
    std::array<std::span<const std::byte>, max_sge + 1> parts{}; // parts[0] is the header
    std::size_t count = 1;
    std::array<fabric::Segment, max_sge> segments; // set by set_segments()

    /// Makes the first @p number elements of segments the payload of the packet.
    void set_segments(std::size_t number);
    [[nodiscard]] std::span<const std::span<const std::byte>> all() {
        parts[0] = std::as_bytes(std::span(&header, 1));
        return {parts.data(), count};
    }
};

/// State of the connection to another process.
struct Peer {
    enum class Share : std::uint8_t { offered, ready, refused };
    std::unordered_map<std::uint32_t, Share> shares;
    /// A read response has offered memory of this process for a direct copy, and the peer may not
    /// have copied it yet.
    bool may_fetch_responses = false;
};

struct Engine::Implementation : fabric::Handler {
    // transmit.cpp: sends packets to queue pairs of this process and of others.

    /// Finds the process that owns the queue pair @p number on the host of @p route. The upper bits
    /// of a queue pair number are the slot, which identifies the process. Sets @p connection to the
    /// connection to that process, or to null if it is this process. Returns false if no process
    /// has the slot, or if the process cannot be reached.
    [[nodiscard]] bool reach(std::uint32_t number, const fabric::Route& route,
                             fabric::Connection*& connection);
    /// Sends a packet. If a fault is planned for the packet, applies the fault.
    /// @param to  the connection; null: to this process
    fabric::Sent transmit(fabric::Connection* to, fabric::Lane lane, Outgoing& packet);
    fabric::Sent put(fabric::Connection* to, fabric::Lane lane, Outgoing& packet);
    /// Queues a packet from a queue pair of this process to another queue pair of this process.
    void append_local(fabric::Lane lane, std::span<const std::byte> record);
    void delay(fabric::Connection* to, fabric::Lane lane, Outgoing& packet, std::uint64_t due,
               std::uint32_t source = 0);
    /// Returns whether the memory that a delayed packet offers for a direct copy is still valid.
    [[nodiscard]] static bool still_holds(std::span<const std::byte> record);
    /// Describes memory ranges (windows) as segments, from which the other process can copy
    /// directly. Returns the number of segments, or 0 if the other process cannot access this
    /// memory.
    [[nodiscard]] std::size_t describe(fabric::Connection* to, fabric::Lane lane,
                                       std::span<const Window> windows,
                                       std::span<fabric::Segment> segments);
    /// Withdraws the memory that requests in flight of this queue pair offer for direct copies.
    /// Peers do not copy from this memory afterwards, so the program may change it.
    static void withdraw_requests(Qp& qp) noexcept;

    // receive.cpp: handles packets from other processes, and from this process (a null connection).

    [[nodiscard]] bool on_request(fabric::Connection& from,
                                  std::span<const std::byte> record) override;
    void on_response(fabric::Connection& from, std::span<const std::byte> record) override;
    void on_room(fabric::Connection& to) override;
    void on_closed(fabric::Connection& connection) override;
    void on_shared(fabric::Connection& to, std::uint32_t share, int error) override;
    /// Delivers the packets between queue pairs of this process.
    void drain() {
        if (local_first != local_end && !draining) {
            drain_local();
        }
    }
    void drain_local();
    void receive(fabric::Connection* from, fabric::Lane lane, std::span<const std::byte> record);

    // multicast.cpp: delivers a datagram to all queue pairs that are attached to its destination.
    void receive_multicast(fabric::Connection* from, const Packet& packet);

    // responder.cpp: handles requests.

    void handle_request(Qp& qp, fabric::Connection* from, const Packet& packet);

    // requester_ack.cpp: handles responses to this process's requests.

    void handle_response(Qp& qp, fabric::Connection* from, const Packet& packet);
    /// Handles a NAK from the responder. Returns true if the queue pair must not send now.
    [[nodiscard]] bool handle_nak(Qp& qp, const PacketHeader& header);

    // requester.cpp

    /// Sends requests until the send queue is empty or must wait.
    void run(Qp& qp);
    /// Marks all requests in flight to be sent again, from the oldest unacknowledged one. Call
    /// run() next.
    void resend(Qp& qp);
    /// Like resend(), for use after a direct copy has failed: sends the data again in packets.
    /// @param withdrawn  whether the copy failed because the peer has withdrawn the memory, for
    ///         example to deregister a region; later requests are then copied directly again
    void resend_as_records(Qp& qp, bool withdrawn);
    /// Removes a closed connection from a queue pair, and resets the packet counts of this
    /// connection.
    static void disconnect(Qp& qp) noexcept;
    /// Returns whether a request with this packet sequence number is in flight.
    [[nodiscard]] static bool awaits(Qp& qp, std::uint32_t psn);
    /// Completes the requests in flight of a UC queue pair, because no response will arrive.
    void give_up_responses(Qp& qp);
    /// Completes the oldest request with an error status, and moves the queue pair to the error
    /// state.
    void fail_oldest(Qp& qp, ibv_wc_status status);

    // short_send.cpp and short_receive.cpp: the usual case of small requests.

    /// Sends the next request of the queue pair on the fast path. If the fast path cannot send it,
    /// returns false and changes nothing; OutboundRequest then sends the request.
    [[nodiscard]] bool send_short(Qp& qp);
    /// Delivers a request with a short header to a queue pair of this process.
    void deliver_short(const ShortHeader& header, std::span<const std::byte> data, bool is_inline);
    void send_ack(Qp& qp, fabric::Connection* to, std::uint32_t psn);
    /// Executes an RDMA write by a direct copy into memory that the other process has granted.
    /// Returns false if a packet must be sent instead.
    [[nodiscard]] bool write_directly(Qp& qp, SendRequest& request,
                                      std::span<const std::byte> data);
    /// Grants the other process direct writes to the memory region of a request. Called after an
    /// RDMA write to this region was executed.
    void grant_writes(const Qp& qp, fabric::Connection& to, const ShortHeader& header);
    /// Executes a request with a short header on the fast path. If the fast path cannot execute it,
    /// returns false and changes nothing; InboundRequest then executes the request.
    [[nodiscard]] bool receive_short(fabric::Connection* from, std::span<const std::byte> record);
    [[nodiscard]] bool execute_short(fabric::Connection* from, const ShortHeader& header,
                                     std::span<const std::byte> data);
    /// Handles an ACK with a short header, if no read or atomic is in flight. Otherwise returns
    /// false and changes nothing; receive() then handles the ACK.
    [[nodiscard]] bool receive_short_ack(fabric::Connection* from,
                                         std::span<const std::byte> record);
    [[nodiscard]] static bool receive_short_send(Qp& qp, const ShortHeader& header,
                                                 std::span<const std::byte> data);
    [[nodiscard]] static bool receive_short_write(Qp& qp, const ShortHeader& header,
                                                  std::span<const std::byte> data);

    // disorder.cpp

    /// Returns the time until which SOFTVERBS_DISORDER delays a packet of the queue pair @p source,
    /// in nanoseconds of CLOCK_MONOTONIC; 0: no delay.
    [[nodiscard]] std::uint64_t late_until(fabric::Lane lane, std::uint32_t source);
    /// Sends the delayed packets of the queue pair @p source at once; if @p source is 0, those of
    /// all queue pairs.
    void send_late_packets(std::uint32_t source);
    void hold_write(const Qp& qp, const Window& window, std::uint64_t offset,
                    std::span<const std::byte> bytes);
    /// Makes the data of all delayed RDMA writes visible.
    void release_writes() {
        if (!held_writes.empty()) [[unlikely]] {
            release_held_writes();
        }
    }
    void release_held_writes();
    void release_writes_due(std::uint64_t now);

    // timers.cpp

    /// Sets the queue pair's deadline to @p after_ns nanoseconds from now.
    void set_timer(Qp& qp, std::uint64_t after_ns);
    /// Sets the deadline for a response from the queue pair's timeout attribute.
    void start_timer(Qp& qp);
    void run_timers(std::uint64_t now);
    void expired(Qp& qp);
    void deliver_delayed(std::uint64_t now);
    void raise_moderated(std::uint64_t now);
    /// Called when a datagram does not fit into a full connection. If the datagram must wait for
    /// room, sets a timer and returns true. If it must be dropped, returns false: the other process
    /// has read no packets since an earlier wait expired.
    [[nodiscard]] bool worth_waiting(Qp& qp);
    /// Time of the earliest deadline, CLOCK_MONOTONIC in nanoseconds; 0: none.
    [[nodiscard]] std::uint64_t next_deadline() const noexcept;

    // agent.cpp

    void agent();
    void wake_agent_before(std::uint64_t deadline);
    /// Handles everything that can be done without waiting. Returns the number of packets handled.
    unsigned work();

    void forget(Qp& qp);

    std::unique_ptr<fabric::Node> node;
    unsigned slot = 0;
    std::unique_ptr<std::thread> thread;
    bool stopping = false;
    /// State of the agent thread: running, sleeping for a short time while the program polls, or
    /// sleeping until it is woken.
    enum class Agent : std::uint8_t { awake, napping, asleep };
    Agent agent_state = Agent::awake;
    std::uint64_t agent_wakes_at = 0; // CLOCK_MONOTONIC in nanoseconds; 0: no deadline
    bool program_sleeps = false;
    std::uint64_t polls = 0;

    std::vector<Qp*> timed;
    std::vector<Qp*> stalled;
    unsigned waiting_for_receivers = 0;

    /// A packet between queue pairs of this process. The buffers are reused.
    struct Local {
        fabric::Lane lane = fabric::Lane::requests;
        std::vector<std::byte> record;
    };
    std::vector<Local> local;
    std::size_t local_first = 0;
    std::size_t local_end = 0; // index after the last packet; local_first is that of the first
    bool draining = false;

    struct Delayed {
        std::uint64_t due;
        fabric::Connection* to;
        fabric::Lane lane;
        std::vector<std::byte> record;
        std::uint32_t source = 0; // SOFTVERBS_DISORDER: queue pair of the packet; otherwise 0
    };
    std::vector<Delayed> delayed;

    /// Data of an RDMA write that SOFTVERBS_DISORDER delays. The target memory (window) stays
    /// valid, because all delayed data is written before a memory region is deregistered.
    struct HeldWrite {
        std::uint64_t due;
        std::uint32_t qp_number;
        Window window;
        std::uint64_t offset;
        std::vector<std::byte> bytes;
    };
    std::vector<HeldWrite> held_writes;
    std::size_t held_bytes = 0;

    /// A completion event that is delayed by moderation.
    struct ModeratedEvent {
        std::uint64_t due;
        Cq* cq;
    };
    std::vector<ModeratedEvent> moderated;

    std::unordered_map<fabric::Connection*, Peer> peers;
    fabric::Connection* last_peer = nullptr;
    /// Connections to the processes that may write directly into memory of this process.
    std::vector<fabric::Connection*> granted;

    /// Prints a message, once per process, if no process has the slot of a queue pair number (its
    /// upper bits) or had it before. A typical cause is a peer with another SOFTVERBS_DIR.
    void report_missing_process(std::uint32_t number);
    std::set<unsigned> slots_seen;
    bool missing_process_reported = false;
};

} // namespace softverbs
