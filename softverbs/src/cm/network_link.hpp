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

/// A TCP connection between two hosts that carries structures of fixed sizes, once both ends have
/// proven that they know the secret. Never waits.
class NetworkLink {
  public:
    enum class State : std::uint8_t {
        handshake,
        open,
        /// Connector: no process listens on the port.
        refused,
        /// The handshake failed; failure() says why.
        unproven,
        /// The other end closed the connection, or the network lost it.
        lost,
    };

    /// @param socket     connected, being connected, or accepted; watched by @p epoll from now on
    NetworkLink(int epoll, fabric::UniqueFd socket, const fabric::Route& route,
                std::unique_ptr<fabric::TcpHandshake> handshake);
    NetworkLink(const NetworkLink&) = delete;
    NetworkLink& operator=(const NetworkLink&) = delete;

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    [[nodiscard]] const fabric::Route& route() const noexcept { return route_; }
    [[nodiscard]] State state() const noexcept { return state_; }
    /// Whether the connection can still be used.
    [[nodiscard]] bool usable() const noexcept {
        return state_ == State::handshake || state_ == State::open;
    }
    [[nodiscard]] const std::string& failure() const noexcept { return handshake_->failure(); }
    /// The slot of the process at the other end, once the handshake is done.
    [[nodiscard]] std::uint32_t peer_slot() const noexcept { return handshake_->peer_slot(); }

    /// Sends bytes, now or as soon as the socket takes them.
    void send(std::span<const std::byte> bytes);
    /// Bytes that the socket has not taken yet.
    [[nodiscard]] std::size_t waiting() const noexcept { return output_.size() - sent_; }
    /// Continues the handshake, sends what waits, and receives what fits into the buffer.
    void service();
    /// The next structure of @p bytes.size() bytes. False: it has not arrived as a whole.
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
