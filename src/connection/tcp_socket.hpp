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

/// Non-blocking TCP sockets, and operations on them with a time limit; see tcp(7). send_all() and
/// Receiver also support other stream sockets, blocking or non-blocking.
namespace rdmabuf::detail {

/// Connects to a host, trying all its addresses.
/// @throws Error ETIMEDOUT, ECONNREFUSED, or another errno value of connect(2); EINVAL if the host
///         has no address
[[nodiscard]] UniqueFd tcp_connect(const std::string& host, std::uint16_t port,
                                   const Deadline& deadline);
/// Binds a socket and listens.
/// @param host  the address to listen at; empty for all IPv4 and IPv6 addresses
/// @param port  0 for a port that the kernel selects
[[nodiscard]] UniqueFd tcp_listen(const std::string& host, std::uint16_t port);
[[nodiscard]] UniqueFd tcp_accept(int listener, const Deadline& deadline);

/// Starts to connect, without waiting. tcp_connect_result() then reports whether the socket is
/// connected.
[[nodiscard]] UniqueFd tcp_start_connect(const sockaddr& address, socklen_t size);
/// Returns the state of a connection attempt, without waiting.
/// @return 0 if the socket is connected, EAGAIN while it is connecting, otherwise the errno value
///         with which the attempt failed
[[nodiscard]] int tcp_connect_result(int socket);
/// Accepts a pending connection, without waiting.
/// @return an empty UniqueFd if no connection is pending, if the pending connection has failed, or
///         if a signal has interrupted the call
[[nodiscard]] UniqueFd tcp_try_accept(int listener);

/// Returns the IP address and the port to which a socket is bound.
[[nodiscard]] sockaddr_storage local_address(int socket);
[[nodiscard]] std::uint16_t local_port(int socket);

/// Sends all of @p bytes.
/// @param what  a name for the data in error messages, such as "its greeting"
/// @throws Error ECONNRESET if the peer has closed the connection, ETIMEDOUT if the peer does not
///         read in time; otherwise the errno value of send(2)
void send_all(int socket, std::span<const std::byte> bytes, const Deadline& deadline,
              std::string_view what);

/// Receives a message that may arrive in several parts. Error messages contain the number of bytes
/// that have arrived.
class Receiver {
  public:
    /// @param what  a name for the message in error messages, such as "a greeting"
    Receiver(int socket, const Deadline& deadline, std::string_view what) noexcept
        : socket_(socket), deadline_(deadline), what_(what) {}

    /// Receives at least one byte.
    /// @return the number of bytes received
    /// @throws Error ECONNRESET if the peer has closed the connection, ETIMEDOUT if no byte arrives
    ///         in time; otherwise the errno value of recv(2)
    std::size_t some(std::span<std::byte> buffer);
    /// Receives bytes until @p buffer is full.
    /// @throws Error ECONNRESET if the peer has closed the connection, ETIMEDOUT if not all bytes
    ///         arrive in time; otherwise the errno value of recv(2)
    void all(std::span<std::byte> buffer);

  private:
    [[nodiscard]] std::string progress() const;

    int socket_;
    const Deadline& deadline_;
    std::string_view what_;
    std::size_t received_ = 0;
};

} // namespace rdmabuf::detail
