// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/handshake.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>
#include <rdmabuf/transport/handle.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::transport::detail {

/// A listening socket, and its connections whose handshake is not finished.
///
/// A connection is unproven until its ConnectorProof has arrived with the correct secret. This end
/// sends nothing on an unproven connection, and creates no queue pair, buffer or key for it. At
/// most max_unproven unproven connections exist; when another connection arrives, the oldest is
/// closed. The kernel accepts a connection only after its first bytes have arrived, or after about
/// the time of EndpointOptions::handshake (TCP_DEFER_ACCEPT), and a connector sends its proof at
/// once. Therefore connections without a proof neither delay nor displace a peer that has the
/// handle.
///
/// At most max_handshakes proven connections are set up at a time. Further connections wait in the
/// queue of the kernel.
class RDMABUF_EXPORT ListenerState {
  public:
    static constexpr std::size_t max_unproven = 64;
    static constexpr std::size_t max_handshakes = 128;

    /// Creates the listening socket.
    /// @param host  the parameter of Endpoint::listen()
    /// @throws Error ENODEV if no network interface (of the name @p host) is up and has an address;
    ///         otherwise the errno value of the call that failed, for example bind(2)
    [[nodiscard]] static std::unique_ptr<ListenerState> open(
        std::shared_ptr<EndpointState> endpoint, const std::string& host);
    ListenerState(const ListenerState&) = delete;
    ListenerState& operator=(const ListenerState&) = delete;
    /// Ends the connections with shutdown(2), because a child process of fork(2) may also have the
    /// sockets open. In such a child, the destructor only closes its own descriptors.
    ~ListenerState();

    [[nodiscard]] const Handle& handle() const noexcept { return handle_; }
    /// Returns a descriptor that is readable when advance() can continue; see
    /// Listener::descriptor().
    [[nodiscard]] std::optional<int> descriptor() const noexcept {
        return is_full() || more_ ? std::nullopt : std::optional(events_.get());
    }

    /// Accepts connections, and advances all handshakes without waiting.
    /// @param finished  set to the finished handshake if the result is `ready`
    /// @param error     set if the result is `failed`
    [[nodiscard]] SetupProgress advance(std::unique_ptr<Handshake>& finished,
                                        ErrorInfo& error) noexcept;
    /// Waits until advance() can continue, or until the time limit is over.
    /// @param timeout  the time limit; negative: no limit
    void wait(std::chrono::milliseconds timeout) const noexcept;

  private:
    ListenerState(std::shared_ptr<EndpointState> endpoint, UniqueFd socket);

    struct Unproven {
        UniqueFd socket;
        std::int64_t deadline = 0;
        ConnectorProof proof = {};
        std::size_t received = 0;
    };
    enum class ProofStatus : std::uint8_t { waiting, accepted, dropped };

    using Handshakes = std::list<std::unique_ptr<Handshake>>;
    [[nodiscard]] bool is_full() const noexcept {
        return handshakes_.size() + advancing_ >= max_handshakes;
    }
    void accept_connections();
    void check_proofs();
    /// Adds a socket to `events_`.
    /// @throws Error with the errno value of epoll_ctl(2)
    void watch(int socket) const;
    /// Removes a socket from `events_`. Closing the socket is not enough if a forked child has a
    /// copy.
    void forget(int socket) const noexcept;
    [[nodiscard]] ProofStatus check_proof(Unproven& peer) const;

    std::shared_ptr<EndpointState> endpoint_;
    UniqueFd socket_;
    /// An epoll(7) set with `socket_` and the sockets of `unproven_` and `handshakes_`.
    UniqueFd events_;
    Handle handle_;
    /// The connections whose peers have not yet proved that they have the handle, oldest first.
    std::vector<Unproven> unproven_;
    /// The handshakes that no thread is advancing now.
    Handshakes handshakes_;
    /// The number of handshakes that threads are advancing now.
    std::size_t advancing_ = 0;
    /// True if the last call of advance() has not advanced all handshakes.
    bool more_ = false;
    rdmabuf::detail::CreatorProcess creator_;
};

} // namespace rdmabuf::transport::detail
