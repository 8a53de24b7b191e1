// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/output_buffer.hpp"
#include "fabric/tcp_handshake.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::cm {

/// A TCP connection between processes of two hosts, on which structures of fixed sizes are sent. It
/// begins with a handshake, in which both processes prove that they know the secret that is
/// configured on all hosts. No function of this class waits.
class NetworkLink {
  public:
    enum class State : std::uint8_t {
        handshake,
        open,
        /// The other host has refused the TCP connection, because no process listens on the port.
        refused,
        /// The handshake has failed. failure() returns the reason.
        unproven,
        /// The connection was closed, by this process or by the other one, or the network has
        /// failed.
        lost,
    };

    /// @param socket  a connected or connecting socket, which the constructor adds to @p epoll
    NetworkLink(int epoll, fabric::UniqueFd socket, const fabric::Route& route,
                std::unique_ptr<fabric::TcpHandshake> handshake);
    NetworkLink(const NetworkLink&) = delete;
    NetworkLink& operator=(const NetworkLink&) = delete;
    ~NetworkLink() = default;

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    [[nodiscard]] const fabric::Route& route() const noexcept { return route_; }
    [[nodiscard]] State state() const noexcept { return state_; }
    /// Returns false if the connection has failed or was closed.
    [[nodiscard]] bool usable() const noexcept {
        return state_ == State::handshake || state_ == State::open;
    }
    [[nodiscard]] const std::string& failure() const noexcept { return handshake_->failure(); }
    /// Returns the TCP port on which the other process receives messages, minus the first TCP port
    /// of softverbs (SOFTVERBS_PORT). This number identifies that process on its host. Valid after
    /// the handshake.
    [[nodiscard]] std::uint32_t peer_slot() const noexcept { return handshake_->peer_slot(); }

    /// Sends bytes, or queues them if the socket is full.
    void send(std::span<const std::byte> bytes);
    /// Returns the number of bytes that are queued for sending.
    [[nodiscard]] std::size_t waiting() const noexcept { return output_.size(); }
    /// Continues the handshake, sends queued bytes, and receives bytes until none are left or the
    /// receive buffer is full.
    void service();
    /// Copies the next bytes.size() bytes of the receive buffer to @p bytes. Returns false if fewer
    /// bytes are in the buffer. If, in addition, the other process can send no more bytes, closes
    /// the connection.
    [[nodiscard]] bool take(std::span<std::byte> bytes);
    template <class Structure>
    void send_structure(const Structure& structure) {
        send(std::as_bytes(std::span(&structure, 1)));
    }
    template <class Structure>
    [[nodiscard]] bool take_structure(Structure& structure) {
        return take(std::as_writable_bytes(std::span(&structure, 1)));
    }
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
    fabric::OutputBuffer output_;
    std::vector<std::byte> input_;
    std::size_t taken_ = 0;
    bool end_of_input_ = false;
};

} // namespace softverbs::cm
