// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cm/exchange.hpp"
#include "cm/network_link.hpp"
#include "fabric/network_settings.hpp"

namespace softverbs::cm {

/// The exchange between processes of different hosts, over TCP. Each process listens for CM
/// messages on a port of its own. A process that has called rdma_listen() also listens on the port
/// of the service directory, which all such processes of a host share (SO_REUSEPORT). To send a
/// request, a process connects to the service directory of the remote host and sends a query with
/// the address and port of the service. The response is the number of the process that listens for
/// this service, and the request is sent to that process. Each connection begins with the handshake
/// of fabric/tcp_handshake.hpp.
class NetworkExchange final : public Exchange {
  public:
    /// Callbacks to the manager, which calls the exchange with its lock held.
    class Requests {
      public:
        /// Returns the process of this host that listens for requests to this service; no value if
        /// there is none.
        [[nodiscard]] virtual std::optional<Peer> find_service(std::uint16_t port_space,
                                                               const WireAddress& address) = 0;
        /// The request with this communication ID was sent to the process @p peer.
        virtual void request_sent(std::uint32_t communication_id, const Peer& peer) = 0;
        /// The request @p request was not sent, because no process of the host listens for it.
        virtual void no_service(const Message& request) = 0;
        /// The request was not sent, because the two hosts do not have the same secret or the same
        /// version.
        virtual void request_refused(std::uint32_t communication_id) = 0;

      protected:
        ~Requests() = default;
    };

    /// @throws std::system_error  the errors of epoll_create1(2) and timerfd_create(2)
    NetworkExchange(fabric::NetworkSettings settings, Requests& requests);

    /// Listens for messages on the port of @p slot. Returns false if another program uses the port.
    /// @throws std::system_error  for every other failure
    [[nodiscard]] bool listen(unsigned slot);
    /// Sets the number of this process (Peer::process), after its slot is known.
    void set_process(std::uint64_t process) noexcept { process_ = process; }
    /// Listens on the host's port of the service directory, unless this process already does.
    /// Returns 0 or an errno: EADDRINUSE (another user or another program has the port).
    [[nodiscard]] int serve_directory();

    /// Sends a REQ or SIDR_REQ to the process that listens at its destination. The result is
    /// reported by the callbacks of Requests. While the host does not respond, the exchange tries
    /// again. Returns 0 or ENOMEM.
    [[nodiscard]] int request(const fabric::Route& route, const Message& message) noexcept;
    /// Ends the attempts to send a request.
    void cancel(std::uint32_t communication_id) noexcept { searches_.erase(communication_id); }
    /// For the child process after fork(2): closes the descriptors.
    void abandon() noexcept;

    /// Sends a message to a process that has sent a message or a request to this process, or to
    /// which a request was sent.
    [[nodiscard]] int send(const Peer& to, const Message& message) noexcept override;
    [[nodiscard]] int fd() const noexcept override { return epoll_.get(); }
    void progress(Receiver& receiver) override;

  private:
    enum class Purpose : std::uint8_t { query, answer, messages };
    struct Listener {
        fabric::HostAddress address;
        fabric::UniqueFd socket;
        Purpose purpose;
    };
    struct Link {
        std::unique_ptr<NetworkLink> connection;
        Purpose purpose;
        /// Connections for messages: the peer. Its process is 0 until its hello has arrived.
        Peer peer;
        bool greeted = false;
        /// Connections for queries: the communication ID of the request.
        std::uint32_t communication_id = 0;
        /// Time at which an unfinished query, response or accepted handshake is given up; 0: never.
        std::uint64_t deadline = 0;
    };
    /// A request for which the listening process is not known yet.
    struct Search {
        fabric::Route route;
        Message message{};
        /// Time of the next query; 0: a query is in progress.
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
    void set_timer() noexcept;

    fabric::NetworkSettings settings_;
    Requests& requests_;
    unsigned slot_ = 0;
    std::uint64_t process_ = 0;
    fabric::UniqueFd epoll_;
    fabric::UniqueFd timer_;
    std::vector<Listener> listeners_;
    bool serves_directory_ = false;
    std::vector<std::unique_ptr<Link>> links_;
    std::map<std::uint32_t, Search> searches_; // by communication ID
};

} // namespace softverbs::cm
