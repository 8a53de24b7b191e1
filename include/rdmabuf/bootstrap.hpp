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
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::bootstrap {

/// A TCP connection over which two processes exchange the addresses of their queue pairs and
/// regions, for programs whose launcher does not exchange these addresses. Both processes send a
/// greeting first. After the greeting, each message has a header with its length and kind, which
/// the receiver checks. The connection is neither encrypted nor authenticated: use it in trusted
/// networks only.
///
/// The timeout applies to each message that an operation sends or receives. A message that is not
/// complete within the timeout causes ETIMEDOUT, even if parts of the message still arrive. All
/// operations throw Error:
/// - ETIMEDOUT: the complete message was not received or not sent within the timeout
/// - ECONNRESET: the peer closed the connection, or its process ended
/// - EPROTO: the peer does not use this protocol, called a different operation than this side, or
///   sent a message longer than max_message. Both sides must call the same operations in the same
///   order
/// - ENOTCONN: an earlier error of the connection, such as ETIMEDOUT or ECONNRESET, or a received
///   message longer than max_message has closed this channel, or this object was moved from
class RDMABUF_EXPORT Channel {
  public:
    /// Connects to a Listener and exchanges greetings with the peer. If no process listens on the
    /// port yet, tries again until the timeout: the two processes can start in any order.
    /// @param host     a host name, or an IPv4 or IPv6 address. All addresses of a name are tried.
    ///                 The timeout does not limit the name lookup: see resolv.conf(5).
    /// @param timeout  the limit for connecting and the greeting together, and later for each
    ///                 message; wait_forever for no limit
    /// @throws Error
    ///   - EINVAL: the host has no address
    ///   - ECONNREFUSED: no process has listened on the port within the timeout
    ///   - EHOSTUNREACH, ENETUNREACH: there is no route to the host
    ///   - ETIMEDOUT: no connection or no complete greeting within the timeout
    ///   - ECONNRESET: the peer closed the connection during the greeting
    ///   - EPROTO: the peer is not an rdmabuf bootstrap; the error text quotes the bytes received
    ///   - EPROTONOSUPPORT: the peer uses another version of the protocol
    [[nodiscard]] static Channel connect(const std::string& host, std::uint16_t port,
                                         std::chrono::milliseconds timeout);

    /// Sends one message of up to max_message bytes. Returns when the whole message is in the
    /// socket buffers. If both sides send more bytes than the socket buffers can hold, and neither
    /// side receives, neither call returns before its timeout (ETIMEDOUT).
    /// @throws Error EMSGSIZE if the message is longer than max_message
    void send(std::span<const std::byte> message);
    /// Waits for one message that the peer sends with send(), and returns the message.
    [[nodiscard]] std::vector<std::byte> receive();

    /// Sends the address @p ours of a local queue pair to the peer, and returns the address that
    /// the peer sends.
    /// @throws Error EPROTONOSUPPORT if the peer sends the address in another version of the
    ///         format; EPROTO or EMSGSIZE if the bytes are not an address
    [[nodiscard]] QueuePairAddress exchange(const QueuePairAddress& ours);
    /// Sends the address, length and rkey of a local region, @p ours, to the peer, and returns the
    /// address, length and rkey of a region of the peer. The errors are those of exchange() for a
    /// QueuePairAddress.
    [[nodiscard]] RemoteRegion exchange(const RemoteRegion& ours);
    /// Sends the value @p ours to the peer and compares it with the value that the peer sends.
    /// Programs use this function for options that must be equal on both sides. If the values
    /// differ, both sides throw, and the channel remains usable.
    /// @throws Error EPROTO if the names or the values differ (the error text contains both names
    ///         or both values); EMSGSIZE if name and value together are longer than max_agreement
    void agree(std::string_view name, std::string_view ours);
    /// Waits until both sides have called barrier().
    void barrier();

    /// Returns the descriptor of the socket for poll(2). This object owns the descriptor. The
    /// descriptor is readable (POLLIN) when a message has arrived or the peer has closed the
    /// connection. To distinguish these two events, request POLLIN and POLLRDHUP. poll(2) reports
    /// POLLRDHUP only after the connection has ended. Messages that arrived before can still be
    /// received. If the machine or the network of the peer fails, an idle connection ends after
    /// about two minutes (TCP keepalive). Returns -1 after a move from this object and after an
    /// error that closed the channel.
    [[nodiscard]] int native() const noexcept { return socket_.get(); }

    /// The maximum length of a message in bytes.
    static constexpr std::size_t max_message = std::size_t{64} * 1024;
    /// The maximum total length of the name and the value in agree(), in bytes. A message of this
    /// length fits in a socket buffer, so both sides can send before either side receives.
    static constexpr std::size_t max_agreement = 1024;

  private:
    friend class Listener;
    /// The kind of a message. The header contains it, so that the receiver detects a message of the
    /// wrong kind.
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

/// A listening TCP socket. accept() returns a Channel for each connection.
class RDMABUF_EXPORT Listener {
  public:
    /// Starts to listen.
    /// @param port  the TCP port; 0 for a free port, which port() returns
    /// @param host  the local address or name to listen on; empty for all addresses, IPv6 and IPv4
    /// @throws Error
    ///   - EADDRINUSE: another socket listens on the port
    ///   - EADDRNOTAVAIL: the host is not an address of this machine
    ///   - EACCES: a privileged port (by default below 1024) without CAP_NET_BIND_SERVICE
    ///   - EINVAL: the host has no address
    explicit Listener(std::uint16_t port, const std::string& host = {});
    Listener(Listener&&) noexcept = default;
    Listener& operator=(Listener&& other) noexcept;
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    /// Stops listening, even if a child process of fork(2) still has the socket open. In such a
    /// child process, the destructor only closes the descriptor of the child.
    ~Listener() { stop(); }

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    /// Waits for a connection and exchanges greetings with the peer.
    /// @param timeout  the limit for the connection and the greeting together, and later for each
    ///                 message; wait_forever for no limit
    /// @throws Error
    ///   - ETIMEDOUT: no connection or no complete greeting within the timeout
    ///   - ECONNRESET: the process that connected closed the connection during the greeting
    ///   - EPROTO: the process that connected is not an rdmabuf bootstrap
    ///   - EPROTONOSUPPORT: the process that connected uses another version of the protocol
    ///   - EMFILE: this process has reached its limit of descriptors
    ///
    /// After each of these errors the listener remains usable: call accept() again. After a move
    /// from this object, accept() throws Error EBADF.
    [[nodiscard]] Channel accept(std::chrono::milliseconds timeout);

    /// Returns the descriptor of the listening socket for poll(2). This object owns the descriptor,
    /// which is readable (POLLIN) when a peer has connected.
    [[nodiscard]] int native() const noexcept { return socket_.get(); }

  private:
    void stop() noexcept;

    UniqueFd socket_;
    rdmabuf::detail::CreatorProcess creator_;
    std::uint16_t port_ = 0;
};

} // namespace rdmabuf::bootstrap
