// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/queue_pair_address.hpp>
#include <rdmabuf/remote_region.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::bootstrap {

/// A TCP connection by which two processes tell each other what they need to connect: for programs
/// that have no launcher to do it. Both ends greet each other first; then messages are framed,
/// bounded and checked. Not encrypted, not authenticated: for trusted networks.
///
/// Every operation ends within the timeout, however slowly the peer drips, or throws:
/// - ETIMEDOUT   the whole message did not come, or was not taken, in time
/// - ECONNRESET  the peer closed the connection, or its process ended
/// - EPROTO      the peer speaks something else, or is at another step than this side: both must
///               call the same operations in the same order
/// - ENOTCONN    an earlier ETIMEDOUT, ECONNRESET or garbled message ended this channel
class RDMABUF_EXPORT Channel {
  public:
    /// @param host     name or address, IPv4 or IPv6; every address of a name is tried. The lookup
    ///                 of a name has limits of its own: resolv.conf(5).
    /// @param timeout  for the connection and the greeting, and afterwards for each message;
    ///                 wait_forever waits
    /// @throws Error ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH or ENETUNREACH, EINVAL for a host that
    ///         has no address, EPROTO when the other end is something else (the hint quotes it),
    ///         EPROTONOSUPPORT when it is of another version
    [[nodiscard]] static Channel connect(const std::string& host, std::uint16_t port,
                                         std::chrono::milliseconds timeout);

    /// Sends one message of up to max_message bytes. Returns when the kernel has taken it: two
    /// sides that both send more than the socket buffers hold, before either receives, time out.
    /// @throws Error EMSGSIZE for more
    void send(std::span<const std::byte> message);
    /// Receives one message, which the peer gave to send().
    [[nodiscard]] std::vector<std::byte> receive();

    /// Sends ours and receives theirs. @throws Error EPROTONOSUPPORT for another version
    [[nodiscard]] QueuePairAddress exchange(const QueuePairAddress& ours);
    [[nodiscard]] RemoteRegion exchange(const RemoteRegion& ours);
    /// Sends ours and compares it with theirs: for what both sides must have been started with.
    /// Both sides get the error, and can go on.
    /// @throws Error EPROTO when they differ; the hint has the name and both values. EMSGSIZE when
    ///         name and value are longer than max_agreement together.
    void agree(std::string_view name, std::string_view ours);
    /// Returns when both sides have called it.
    void barrier();

    /// The socket, for poll(2): it is readable when a message has arrived, and when the peer has
    /// closed the connection. -1 after a move.
    [[nodiscard]] int native() const noexcept { return socket_.get(); }

    /// The longest message, in bytes.
    static constexpr std::size_t max_message = std::size_t{64} * 1024;
    /// The longest name and value of agree(), in bytes: so short that both sides can send before
    /// either receives.
    static constexpr std::size_t max_agreement = 1024;

  private:
    friend class Listener;
    /// What a frame carries; on the wire.
    enum class Kind : std::uint8_t;

    Channel(UniqueFd socket, std::chrono::milliseconds timeout) noexcept
        : socket_(std::move(socket)), timeout_(timeout) {}
    [[nodiscard]] static const char* describe(Kind kind) noexcept;
    void send_frame(Kind kind, std::span<const std::byte> payload);
    [[nodiscard]] std::vector<std::byte> receive_frame(Kind kind);
    template <class Value>
    [[nodiscard]] Value exchange_as(Kind kind, const Value& ours);

    UniqueFd socket_;
    std::chrono::milliseconds timeout_;
};

/// Waits for Channels.
class RDMABUF_EXPORT Listener {
  public:
    /// @param port  0 for one that is free
    /// @param host  the address to listen at; empty for all, IPv6 and IPv4
    /// @throws Error EADDRINUSE, EADDRNOTAVAIL when the host is not this machine, EACCES for a port
    ///         below 1024, EINVAL for a host that has no address
    explicit Listener(std::uint16_t port, const std::string& host = {});

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    /// @param timeout  for a peer to come and to greet, and afterwards for each message;
    ///                 wait_forever waits
    /// @throws Error ETIMEDOUT, EMFILE, ECONNRESET, EPROTO and EPROTONOSUPPORT as
    ///         Channel::connect: it has not been one of these that came; accept again
    [[nodiscard]] Channel accept(std::chrono::milliseconds timeout);

  private:
    UniqueFd socket_;
    std::uint16_t port_ = 0;
};

} // namespace rdmabuf::bootstrap
