// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cm/exchange.hpp"
#include "cm/network_link.hpp"
#include "fabric/clock.hpp"
#include "fabric/network_settings.hpp"
#include "fabric/spare_descriptor.hpp"

namespace softverbs::cm {

/// Exchanges messages of the connection manager between processes of different hosts, over TCP.
/// Each process receives messages on a port of its own. In addition, all processes of a host that
/// have called rdma_listen() share the port of the service directory (SO_REUSEPORT). To send a
/// connection request, a process first sends a query to the service directory of the other host,
/// with the address and port of the service. The response identifies the process that listens
/// there. Then the request is sent to that process. Each connection begins with the handshake of
/// fabric/tcp_handshake.hpp.
class NetworkExchange final : public Exchange {
  public:
    /// Callbacks of the NetworkExchange. The manager implements them.
    class Requests {
      public:
        /// Returns the process of this host that has called rdma_listen() for this address. Returns
        /// no value if there is none.
        [[nodiscard]] virtual std::optional<Peer> find_service(std::uint16_t port_space,
                                                               const WireAddress& address) = 0;
        /// Called when the connection request with this communication ID was sent to @p peer.
        virtual void request_sent(std::uint32_t communication_id, const Peer& peer) = 0;
        /// Called when a connection request was not sent, because no process of the other host
        /// listens at its destination, or because no connection to that process could be created.
        virtual void no_service(const Message& request) = 0;
        /// Called when a connection request was not sent, because the two hosts have different
        /// secrets or softverbs versions.
        virtual void request_refused(std::uint32_t communication_id) = 0;

      protected:
        ~Requests() = default;
    };

    /// @throws std::system_error  if epoll_create1(2) or timerfd_create(2) fails
    NetworkExchange(fabric::NetworkSettings settings, Requests& requests);

    /// Listens for messages to this process on TCP port first_port (SOFTVERBS_PORT) + first_cm_slot
    /// + @p slot. Returns false if another program uses this port.
    /// @param slot  the slot of this process in the LocalExchange (0 to 1023)
    /// @throws std::system_error  for every other failure
    [[nodiscard]] bool listen(unsigned slot);
    /// Sets the Peer::process of this process, which its Hello messages contain.
    void set_process(std::uint64_t process) noexcept { process_ = process; }
    /// Listens on the TCP port of the service directory, where other hosts query which process of
    /// this host listens for a connection request. Does nothing if this process already listens on
    /// this TCP port. Returns 0 or an errno, such as EADDRINUSE (another user or another program
    /// uses the port).
    [[nodiscard]] int serve_directory();

    /// Sends a REQ or SIDR_REQ to the process of the other host that listens at the destination of
    /// the request. Calls a function of Requests when the result is known. Tries again as long as
    /// the other host does not respond, until cancel() is called. Returns 0 or ENOMEM.
    [[nodiscard]] int request(const fabric::Route& route, const Message& message) noexcept;
    /// Ends the attempts to send the request with this communication ID.
    void cancel(std::uint32_t communication_id) noexcept { searches_.erase(communication_id); }
    /// Called in a child process after fork(2). Closes the file descriptors that the child has
    /// inherited.
    void abandon() noexcept;

    /// Sends a message to the process @p to of another host, on an existing connection. Returns 0
    /// or an errno: ENOENT (there is no connection to that process), ENOMEM. Drops the message, and
    /// returns 0, if too many bytes are already queued for that process.
    [[nodiscard]] int send(const Peer& to, const Message& message) noexcept override;
    [[nodiscard]] int fd() const noexcept override { return epoll_.get(); }
    void progress(Receiver& receiver) override;
    /// Returns when the next timer expires, in nanoseconds of fabric::now_ns(). 0: no timer is set.
    [[nodiscard]] std::uint64_t next_deadline() const noexcept;
    /// Makes fd() readable at next_deadline().
    void set_timer() noexcept;

  private:
    /// Time limit in nanoseconds for the handshake of an accepted TCP connection, and for a query
    /// to the service directory of another host. After this time, the query is sent again on a new
    /// connection. Because of SO_REUSEPORT, another process of that host may then respond.
    static constexpr std::uint64_t query_ns = 3 * fabric::second_ns;

    /// On a connection for messages of the connection manager (Purpose::messages): the first
    /// structure that each process sends after the handshake. Connections for queries to the
    /// service directory have no Hello.
    struct Hello {
        std::uint32_t magic;
        std::uint32_t message_size;
        std::uint64_t process;
    };
    enum class Purpose : std::uint8_t { query, answer, messages };
    struct Listener {
        fabric::HostAddress address;
        fabric::UniqueFd socket;
        Purpose purpose;
    };
    struct Link {
        std::unique_ptr<NetworkLink> connection;
        Purpose purpose;
        /// On a connection for messages: the process at the other end. On a connection that this
        /// process has accepted, Peer::process is 0 until the Hello of the other process has
        /// arrived.
        Peer peer;
        bool greeted = false;
        /// On a connection for a query: the communication ID of the connection request that needs
        /// the query.
        std::uint32_t communication_id = 0;
        /// Time at which this connection is closed if its handshake or query is not complete, in
        /// nanoseconds of now_ns(). 0: there is no time limit.
        std::uint64_t deadline = 0;
    };
    /// A connection request to another host, for which the process that listens is not known yet.
    struct Search {
        fabric::Route route;
        Message message{};
        /// Time at which the other host is queried again for the process that listens at the
        /// destination, in nanoseconds of now_ns(). 0: a query is in progress.
        std::uint64_t next = 0;
    };

    [[nodiscard]] fabric::UniqueFd listening_socket(const fabric::HostAddress& address,
                                                    unsigned slot, bool shared, int& error) const;
    void watch(const Listener& listener) const;
    [[nodiscard]] Link* find(const Peer& peer) noexcept;
    [[nodiscard]] Link* add(fabric::UniqueFd socket, const fabric::Route& route, Purpose purpose,
                            std::unique_ptr<fabric::TcpHandshake> handshake);
    [[nodiscard]] Link* connect(const fabric::Route& route, unsigned slot, Purpose purpose);
    void query(std::uint32_t communication_id, Search& search);
    void deliver_request(std::uint32_t communication_id, const Search& search,
                         std::uint64_t process);
    void accept_all(const Listener& listener);
    void service(Link& link, Receiver& receiver);
    void answer_query(Link& link);
    void receive_answer(Link& link);
    void receive_messages(Link& link, Receiver& receiver);
    void remove_ended(Receiver& receiver);
    void query_ended(const Link& link);
    void run_timers(std::uint64_t now);

    fabric::NetworkSettings settings_;
    Requests& requests_;
    unsigned slot_ = 0;
    std::uint64_t process_ = 0;
    fabric::UniqueFd epoll_;
    fabric::UniqueFd timer_;
    fabric::SpareDescriptor spare_;
    std::vector<Listener> listeners_;
    bool serves_directory_ = false;
    std::vector<std::unique_ptr<Link>> links_;
    std::map<std::uint32_t, Search> searches_; // by communication ID
};

} // namespace softverbs::cm
