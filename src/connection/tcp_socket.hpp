// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <rdmabuf/unique_fd.hpp>

#include "base/file_descriptor.hpp"

/// Non-blocking TCP sockets, and operations that end in time: send_all() and Receiver also on other
/// stream sockets, blocking or not. tcp(7).
namespace rdmabuf::detail {

/// @throws Error ETIMEDOUT, ECONNREFUSED, or what connect(2) says of the network
[[nodiscard]] UniqueFd tcp_connect(const std::string& host, std::uint16_t port,
                                   const Deadline& deadline);
/// @param host  empty for every address, IPv4 and IPv6
[[nodiscard]] UniqueFd tcp_listen(const std::string& host, std::uint16_t port);
[[nodiscard]] UniqueFd tcp_accept(int listener, const Deadline& deadline);

/// Begins to connect, and does not wait: tcp_connect_result() says when the connection is there.
[[nodiscard]] UniqueFd tcp_start_connect(const sockaddr& address, socklen_t size);
/// @return 0 when the socket is connected, EAGAIN while it is connecting, otherwise the errno value
///         with which connecting failed. Does not wait.
[[nodiscard]] int tcp_connect_result(int socket);
/// Accepts a connection, and does not wait: without one, the result is empty.
[[nodiscard]] UniqueFd tcp_try_accept(int listener);

/// The address and port to which a socket is bound.
[[nodiscard]] sockaddr_storage local_address(int socket);
[[nodiscard]] std::uint16_t local_port(int socket);

/// @param what  what is sent, for errors: "its greeting"
/// @throws Error ECONNRESET when the peer has closed, ETIMEDOUT when it does not take the bytes
void send_all(int socket, std::span<const std::byte> bytes, const Deadline& deadline,
              std::string_view what);

/// Receives something that comes in several pieces, and knows for errors how much of it has come.
class Receiver {
  public:
    /// @param what  what is awaited, for errors: "a greeting"
    Receiver(int socket, const Deadline& deadline, std::string_view what) noexcept
        : socket_(socket), deadline_(deadline), what_(what) {}

    /// Receives at least one byte. @return how many
    /// @throws Error ECONNRESET when the peer has closed, ETIMEDOUT
    std::size_t some(std::span<std::byte> buffer);
    /// Fills @p buffer. @throws Error as some()
    void all(std::span<std::byte> buffer);

  private:
    [[nodiscard]] std::string progress() const;

    int socket_;
    const Deadline& deadline_;
    std::string_view what_;
    std::size_t received_ = 0;
};

} // namespace rdmabuf::detail
