// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/tcp_handshake.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::cm {

/// A TCP connection between two hosts that carries structures of fixed sizes. Both ends first prove
/// that they know the secret. No function waits.
class NetworkLink {
  public:
    enum class State : std::uint8_t {
        handshake,
        open,
        /// For a connector: no process listens on the port.
        refused,
        /// The handshake has failed; failure() returns the reason.
        unproven,
        /// The other end has closed the connection, or the network has failed.
        lost,
    };

    /// @param socket  connected, connecting, or accepted; the constructor registers it in @p epoll
    NetworkLink(int epoll, fabric::UniqueFd socket, const fabric::Route& route,
                std::unique_ptr<fabric::TcpHandshake> handshake);
    NetworkLink(const NetworkLink&) = delete;
    NetworkLink& operator=(const NetworkLink&) = delete;
    ~NetworkLink() = default;

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    [[nodiscard]] const fabric::Route& route() const noexcept { return route_; }
    [[nodiscard]] State state() const noexcept { return state_; }
    /// Returns whether the connection is open or its handshake is in progress.
    [[nodiscard]] bool usable() const noexcept {
        return state_ == State::handshake || state_ == State::open;
    }
    [[nodiscard]] const std::string& failure() const noexcept { return handshake_->failure(); }
    /// Returns the slot (number) of the process at the other end, after the handshake.
    [[nodiscard]] std::uint32_t peer_slot() const noexcept { return handshake_->peer_slot(); }

    /// Sends bytes, or queues them until the socket has room.
    void send(std::span<const std::byte> bytes);
    /// Returns the number of bytes that wait for room in the socket.
    [[nodiscard]] std::size_t waiting() const noexcept { return output_.size() - sent_; }
    /// Continues the handshake, sends queued bytes, and receives bytes until the buffer is full.
    void service();
    /// Removes the next structure of @p bytes.size() bytes from the receive buffer. Returns false
    /// if it has not arrived completely.
    [[nodiscard]] bool take(std::span<std::byte> bytes);
    /// Ends the connection.
    void close() noexcept;

  private:
    void shake_hands();
    void flush() noexcept;
    void receive();
    void watch() noexcept;

    int epoll_;
    fabric::UniqueFd socket_;
    fabric::Route route_;
    std::unique_ptr<fabric::TcpHandshake> handshake_;
    State state_ = State::handshake;
    bool connected_ = false;
    std::vector<std::byte> output_;
    std::size_t sent_ = 0;
    std::vector<std::byte> input_;
    std::size_t taken_ = 0;
    bool end_of_input_ = false;
};

} // namespace softverbs::cm
