// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
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

/// CLOCK_MONOTONIC in nanoseconds.
[[nodiscard]] std::uint64_t now_ns() noexcept;

/// Data of up to this size travels in the packet: copying it twice takes less time than fetching
/// it. A round size, and the header that a protocol may have put before it.
inline constexpr std::size_t small_message = 8192 + 256;
/// And at most this much of it in one packet, so that a lane has room for several.
inline constexpr std::size_t record_payload = std::size_t{16} * 1024;

/// A packet to be sent: the header, and parts that follow it.
struct Outgoing {
    Outgoing() noexcept {} // NOLINT: segments is left as it is

    PacketHeader header{};
    std::array<std::span<const std::byte>, max_sge + 1> parts{}; // the first is the header's
    std::size_t count = 1;
    std::array<fabric::Segment, max_sge> segments; // only as many as set_segments() says

    /// Makes the segments the payload.
    void set_segments(std::size_t number);
    [[nodiscard]] std::span<const std::span<const std::byte>> all() {
        parts[0] = std::as_bytes(std::span(&header, 1));
        return {parts.data(), count};
    }
};

/// What is known of a process that this one is connected with.
struct Peer {
    enum class Share : std::uint8_t { offered, ready, refused };
    std::unordered_map<std::uint32_t, Share> shares;
    /// Answers to its reads say where to fetch the data, and it may not have done so yet.
    bool may_fetch_responses = false;
};

struct Engine::Implementation : fabric::Handler {
    // sending.cpp: to a queue pair in this process or another.

    /// The connection to the process that has queue pair @p number, on the host that @p route leads
    /// to, or null for this process. False: no process has it.
    [[nodiscard]] bool reach(std::uint32_t number, const fabric::Route& route,
                             fabric::Connection*& connection);
    /// Lets the packet go, or have what becomes of it by a fault. Null: to this process.
    fabric::Sent transmit(fabric::Connection* to, fabric::Lane lane, Outgoing& packet);
    fabric::Sent put(fabric::Connection* to, fabric::Lane lane, Outgoing& packet);
    void delay(fabric::Connection* to, fabric::Lane lane, Outgoing& packet, unsigned milliseconds);
    /// Whether what a packet that was delayed says to fetch is still what it was.
    [[nodiscard]] static bool still_holds(std::span<const std::byte> record);
    /// Makes segments of the windows for the other process to fetch. How many; 0: it cannot.
    [[nodiscard]] std::size_t describe(fabric::Connection* to, fabric::Lane lane,
                                       std::span<const Window> windows,
                                       std::span<fabric::Segment> segments);
    /// What a queue pair offered to be fetched, and was not yet, is not to be any more: its memory
    /// is the program's again.
    static void withdraw_requests(Qp& qp) noexcept;

    // receiving.cpp: what arrives, from this process (null) or another.

    [[nodiscard]] bool on_request(fabric::Connection& from,
                                  std::span<const std::byte> record) override;
    void on_response(fabric::Connection& from, std::span<const std::byte> record) override;
    void on_room(fabric::Connection& to) override;
    void on_gone(fabric::Connection& connection) override;
    void on_shared(fabric::Connection& to, std::uint32_t share, int error) override;
    /// Hands out what queue pairs of this process have sent each other.
    void drain();
    void receive(fabric::Connection* from, fabric::Lane lane, std::span<const std::byte> record);

    // responder.cpp: requests of others.

    void handle_request(Qp& qp, fabric::Connection* from, const Packet& packet);

    // answers.cpp: to requests of this process.

    void handle_response(Qp& qp, fabric::Connection* from, const Packet& packet);
    /// What the request in question becomes; true: nothing is to be sent now.
    [[nodiscard]] bool handle_nak(Qp& qp, const PacketHeader& header);

    // requester.cpp

    /// Sends what can be sent.
    void run(Qp& qp);
    /// What is in flight is sent anew, from the oldest request that has not been answered.
    void resend(Qp& qp);
    /// The same, for what could not be fetched.
    void resend_as_records(Qp& qp);
    /// There is no connection any more, and with it no count of what the other process took.
    static void disconnect(Qp& qp) noexcept;
    /// Whether a request with this number waits for its answer.
    [[nodiscard]] static bool awaits(Qp& qp, std::uint32_t psn);
    /// No answers are going to come to an unreliable queue pair.
    void give_up_responses(Qp& qp);
    /// The oldest request fails, and with it the queue pair.
    void fail_oldest(Qp& qp, ibv_wc_status status);

    // timers.cpp

    /// Sets a deadline @p after_ns from now.
    void set_timer(Qp& qp, std::uint64_t after_ns);
    /// The one by which an answer has to come.
    void start_timer(Qp& qp);
    void run_timers(std::uint64_t now);
    void expired(Qp& qp);
    void deliver_delayed(std::uint64_t now);
    void raise_moderated(std::uint64_t now);
    /// Whether a datagram waits for room in a full lane: as long as the other process takes some
    /// out, so that a burst does not get lost. Sets a timer.
    [[nodiscard]] bool worth_waiting(Qp& qp);
    /// When something is due next; 0: never.
    [[nodiscard]] std::uint64_t next_deadline() const noexcept;

    // agent.cpp

    void agent();
    void wake_agent_before(std::uint64_t deadline);
    /// All that there is to do without waiting: how much it was.
    unsigned work();

    void forget(Qp& qp);

    std::unique_ptr<fabric::Node> node;
    unsigned slot = 0;
    std::unique_ptr<std::thread> thread;
    bool stopping = false;
    /// What the agent does now: nothing that can be woken, a short nap while the program polls, or
    /// sleep until somebody rings.
    enum class Agent : std::uint8_t { awake, napping, asleep };
    Agent agent_state = Agent::awake;
    std::uint64_t agent_wakes_at = 0; // 0: never
    bool program_sleeps = false;
    std::uint64_t polls = 0;

    std::vector<Qp*> timed;
    std::vector<Qp*> stalled;
    unsigned waiting_for_receivers = 0;

    /// Packets between queue pairs of this process. Their memory is used again and again.
    struct Local {
        fabric::Lane lane = fabric::Lane::requests;
        std::vector<std::byte> record;
    };
    std::vector<Local> local;
    std::size_t local_first = 0;
    std::size_t local_end = 0; // those from local_first on are there
    bool draining = false;

    struct Delayed {
        std::uint64_t due;
        fabric::Connection* to;
        fabric::Lane lane;
        std::vector<std::byte> record;
    };
    std::vector<Delayed> delayed;

    /// An event that moderation of a completion queue holds back.
    struct ModeratedEvent {
        std::uint64_t due;
        Cq* cq;
    };
    std::vector<ModeratedEvent> moderated;

    std::unordered_map<fabric::Connection*, Peer> peers;
    fabric::Connection* last_peer = nullptr;
};

} // namespace softverbs
