// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/network_settings.hpp"
#include "fabric/spare_descriptor.hpp"
#include "fabric/tcp_handshake.hpp"
#include "fabric/tcp_link.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// The TCP connections of this process to other hosts, and its listening TCP sockets.
class TcpNetwork {
  public:
    /// @param state  must outlive this object
    TcpNetwork(NetworkSettings settings, NodeState& state);
    TcpNetwork(const TcpNetwork&) = delete;
    TcpNetwork& operator=(const TcpNetwork&) = delete;
    ~TcpNetwork();

    /// Listens on the TCP port for the slot @p slot, at all addresses in the settings. Returns
    /// false if another program uses the port; the caller must then try another slot.
    /// @throws std::system_error  for every other failure; the text suggests a remedy
    [[nodiscard]] bool listen(unsigned slot);
    /// Implements Node::serve_directory().
    [[nodiscard]] int serve_directory();

    /// Returns a file descriptor that is readable when progress() must be called.
    [[nodiscard]] int descriptor() const noexcept { return epoll_.get(); }

    /// Implements Node::connect() for processes on other hosts.
    [[nodiscard]] Connection* connect(const Route& route, unsigned slot);
    /// Accepts connections, continues handshakes, and passes at most @p budget records (requests
    /// and responses) to the callbacks of @p handler. Returns the number of records that were
    /// consumed.
    unsigned progress(Handler& handler, unsigned budget);
    /// Calls TcpLink::acknowledge() for each connection.
    void acknowledge() noexcept;
    /// Implements Node::next_deadline().
    [[nodiscard]] std::uint64_t next_deadline() const noexcept;
    /// Implements Node::clock_runs().
    void set_timer() noexcept;
    /// Returns whether progress() must be called although descriptor() is not readable.
    [[nodiscard]] bool pending() const noexcept;
    /// Called in a child process after fork(2). Closes the file descriptors that the child process
    /// has inherited from this object.
    void abandon() noexcept;

  private:
    struct Listener {
        HostAddress address;
        UniqueFd socket;
        unsigned slot; // that of this process, or directory_slot
    };
    /// A peer that has connected but has not yet proven that it knows the secret in
    /// SOFTVERBS_SECRET_FILE.
    struct UnprovenPeer {
        UniqueFd socket;
        Route route;
        unsigned slot; // of the Listener
        std::unique_ptr<TcpHandshake> handshake;
        std::uint64_t deadline_ns;
    };
    /// Returns the TCP port for the slot @p slot, on this host and on others.
    [[nodiscard]] std::uint16_t port(unsigned slot) const noexcept {
        return static_cast<std::uint16_t>(settings_.first_port + settings_.first_slot + slot);
    }
    /// Adds a listener on the port of the slot @p slot for each address of this host. On failure,
    /// adds none, returns an errno, and stores the address in @p failed. Otherwise returns 0.
    [[nodiscard]] int add_listeners(unsigned slot, HostAddress& failed);
    void handle(int socket, Handler& handler, unsigned budget, unsigned& done);
    void accept_peers(const Listener& listener);
    void continue_handshake(std::size_t position);
    void drop_peer(std::size_t position, const std::string& why);
    /// Closes a connection whose peer has not proven yet that it knows the secret. Selects the
    /// oldest one of the host with the most such connections, so that one host cannot keep the
    /// others out.
    void drop_unproven_peer();
    void end_overdue_handshakes();
    void reap(Handler& handler);

    NetworkSettings settings_;
    unsigned slot_ = 0;
    NodeState& state_;
    UniqueFd epoll_;
    UniqueFd timer_;
    SpareDescriptor spare_;
    std::vector<Listener> listeners_;
    bool serves_directory_ = false;
    std::vector<UnprovenPeer> unproven_;
    std::vector<std::unique_ptr<TcpLink>> links_;
};

} // namespace softverbs::fabric
