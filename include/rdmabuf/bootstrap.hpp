// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/queue_pair_address.hpp>
#include <rdmabuf/remote_region.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::bootstrap {

/// A TCP connection by which two processes tell each other what they need to connect: for programs
/// that have no launcher to do it. Messages are framed, bounded and checked: a peer that hangs up
/// (ECONNRESET), stalls (ETIMEDOUT) or speaks something else (EPROTO) is an error. Not encrypted,
/// not authenticated: for trusted networks.
class Channel {
  public:
    /// @param host     name or address, IPv4 or IPv6; every address of a name is tried
    /// @param timeout  for the connection, and afterwards for each send and receive
    /// @throws Error ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH, EINVAL for a host that does not
    /// resolve,
    ///         EPROTO and EPROTONOSUPPORT when the other end is not one of these, or of another
    ///         version
    [[nodiscard]] static Channel connect(const std::string& host, std::uint16_t port,
                                         std::chrono::milliseconds timeout);

    /// Sends one message of up to max_message bytes. @throws Error EMSGSIZE, ECONNRESET, ETIMEDOUT
    void send(std::span<const std::byte> message);
    /// Receives one message. @throws Error ECONNRESET, ETIMEDOUT, EPROTO
    [[nodiscard]] std::vector<std::byte> receive();

    /// Sends ours and receives theirs.
    [[nodiscard]] QueuePairAddress exchange(const QueuePairAddress& ours);
    [[nodiscard]] RemoteRegion exchange(const RemoteRegion& ours);
    /// Sends ours and compares it with theirs: for what both sides must have been started with.
    /// @throws Error EPROTO when they differ; the hint has the name and both values
    void agree(std::string_view name, std::string_view ours);
    /// Returns when both sides have called it.
    void barrier();

    /// The longest message, in bytes.
    static constexpr std::size_t max_message = 64 * 1024;

  private:
    friend class Listener;
    Channel(UniqueFd socket, std::chrono::milliseconds timeout);
    void greet();

    UniqueFd socket_;
    std::chrono::milliseconds timeout_;
};

/// Waits for Channels.
class Listener {
  public:
    /// @param port  0 for one that is free
    /// @param host  the address to listen at; empty for all, IPv6 and IPv4
    /// @throws Error EADDRINUSE, EADDRNOTAVAIL, EACCES
    explicit Listener(std::uint16_t port, const std::string& host = {});

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    /// @param timeout  for a peer to come, and afterwards for each send and receive
    /// @throws Error ETIMEDOUT, and as Channel::connect
    [[nodiscard]] Channel accept(std::chrono::milliseconds timeout);

  private:
    UniqueFd socket_;
    std::uint16_t port_ = 0;
};

} // namespace rdmabuf::bootstrap
