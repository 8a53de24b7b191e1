// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <span>

#include "cm/message.hpp"
#include "fabric/node.hpp"
#include "fabric/report.hpp"

namespace softverbs::cm {

class Manager;

/// Identifies a process that sends and receives messages of the connection manager.
struct Peer {
    /// The address of the host of the process, as a GID. All zeros: this machine.
    Gid host{};
    /// Identifies the process among all processes that its host has ever had. The low 16 bits are
    /// its slot (0 to 1023), which a later process can reuse. The other bits are random.
    std::uint64_t process = 0;

    /// The bits of Peer::process that contain the slot (0 to 1023).
    static constexpr std::uint64_t slot_mask = 0xffff;

    auto operator<=>(const Peer&) const = default;
};

/// A record on a connection for messages.
struct Envelope {
    std::uint64_t process = 0; // of the sender, as in Peer::process
    Message message{};
    std::uint32_t reserved = 0;
};

/// Exchanges messages of the connection manager (such as REQ and REP) with other processes, which
/// are nodes of a fabric of their own. Messages between two processes arrive in the order in which
/// they were sent. A message is lost only if the connection fails, if too many messages are queued
/// for a process that does not receive them, or if memory or file descriptors are exhausted.
///
/// To send a connection request to another host, a process first sends a query to the directory of
/// that host (fabric::directory_slot), with the address and port of the service. Any process of
/// that host that listens responds with the process that listens there. Then the request is sent to
/// that process.
///
/// The caller must hold Manager::lock during all calls. No function waits.
class Exchange final : fabric::Handler {
  public:
    /// Takes a free slot (0 to 1023) of the subdirectory "cm" of the rendezvous directory.
    /// @throws std::system_error  the directory cannot be used, or no slot is free
    /// @param manager  receives messages and results; must outlive this object
    Exchange(const fabric::NetworkSettings& network, Manager& manager);

    /// Returns the Peer by which other processes of this machine identify this process.
    [[nodiscard]] const Peer& self() const noexcept { return self_; }
    [[nodiscard]] const fabric::Node& node() const noexcept { return node_; }
    [[nodiscard]] fabric::Node& node() noexcept { return node_; }
    /// Returns whether a running process owns the slot @p slot; also true if this cannot be
    /// determined.
    [[nodiscard]] bool alive(unsigned slot) const;
    /// Sends a message to the process @p to, or queues it if the process cannot receive it now. To
    /// a process of another host, there must be a connection already. Returns 0 or an errno: ENOENT
    /// (there is no such process or connection), EACCES (the process belongs to another user),
    /// EAGAIN (the process accepts no connections now), EMFILE, ENOMEM.
    [[nodiscard]] int send(const Peer& to, const Message& message) noexcept;
    /// Sends a REQ or SIDR_REQ to the process of the other host that listens at the destination of
    /// the request. Calls a function of the Manager when the result is known. Tries again as long
    /// as the other host does not respond, until cancel() is called. Returns 0 or ENOMEM.
    [[nodiscard]] int request(const fabric::Route& route, const Message& message) noexcept;
    /// Ends the attempts to send the request with this communication ID. Returns whether there were
    /// such attempts.
    bool cancel(std::uint32_t communication_id) noexcept {
        return searches_.erase(communication_id) != 0;
    }

    /// Receives messages, sends queued messages, and reports processes that have ended. Returns
    /// whether there was something to do.
    bool progress();
    /// Returns when the next timer expires, in nanoseconds of fabric::now_ns(). 0: no timer is set.
    [[nodiscard]] std::uint64_t next_deadline() const noexcept;

  private:
    /// A connection for messages.
    struct Link {
        Peer peer;
        std::deque<Message> waiting;
    };
    /// A connection request to another host, for which the process that listens is not known yet.
    struct Search {
        fabric::Route route;
        Message message{};
        /// The connection on which the query was sent; null: none.
        fabric::Connection* asked = nullptr;
        /// Time at which the other host is queried again, in nanoseconds of now_ns().
        std::uint64_t next = 0;
    };

    bool on_request(fabric::Connection& from, std::span<const std::byte> record) override;
    void on_response(fabric::Connection& from, std::span<const std::byte> record) override;
    void on_room(fabric::Connection& to) override;
    void on_closed(fabric::Connection& connection) override;
    void on_shared(fabric::Connection&, std::uint32_t, int) override {}

    [[nodiscard]] int post(fabric::Connection& to, const Peer& peer, const Message& message);
    [[nodiscard]] fabric::Sent put(fabric::Connection& to, const Message& message) const noexcept;
    void receive(fabric::Connection& from, std::span<const std::byte> record);
    [[nodiscard]] bool answer(fabric::Connection& from, std::span<const std::byte> record);
    void query(std::uint32_t communication_id, Search& search) noexcept;
    void deliver(std::uint32_t communication_id, const Search& search, std::uint64_t process);
    void query_ended(const fabric::Connection& connection);

    Manager& manager_;
    fabric::Node node_;
    Peer self_;
    std::map<fabric::Connection*, Link> links_;
    std::map<std::uint32_t, Search> searches_; // by communication ID
};

/// Calls @p function. If it throws an exception, reports a lost message.
template <class Function>
void without_exceptions(const Function& function) noexcept {
    try {
        function();
    } catch (const std::exception&) {
        fabric::report(
            "a message of rdma_cm is lost, because memory or descriptors are exhausted; raise "
            "ulimit -v, ulimit -n or the memory limit");
    }
}

} // namespace softverbs::cm
