// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <rdmabuf/cm.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>

/// Non-blocking connections with librdmacm: one thread serves many connections with one event
/// channel. The program adds the descriptor of the channel to its epoll(7) set.
///
///     cm::EventChannel channel;
///     cm::AsyncListener listener(channel, "", 4711);
///     while (poll(...)) {                                  // channel.fd() is readable
///         while (auto event = channel.next_event()) {
///             switch (event->type) {
///                 case cm::EventType::connect_request: {
///                     cm::AsyncConnection peer = std::move(*event->request);
///                     auto prepared = QueuePair::prepare(pd_of(peer.context()), {…});
///                     peer.accept(std::move(prepared));    // `established` follows
///
/// The functions of this header do not wait, except EventChannel::wait() and the lookup of a host
/// name. A function that begins a step (resolve, connect, accept, disconnect) returns at once; an
/// event reports the result of the step. Only reliable connected queue pairs can be connected;
/// cm_multicast.hpp is for datagrams.
///
/// A channel and its connections, listeners and multicast groups must be used by one thread at a
/// time. Different channels may be used by different threads at the same time.
namespace rdmabuf::cm {

namespace detail {
class AsyncId;
class ConnectionState;
class ListenerState;
} // namespace detail

class EventChannel;

/// The type of an event.
enum class EventType : std::uint8_t {
    /// The local device is known. For a connection, the route to the peer is resolved, too. The
    /// program can call AsyncConnection::connect() or MulticastGroup::join().
    resolved,
    /// A listener has received a connection request, which is in ChannelEvent::request.
    connect_request,
    /// The queue pair is connected and can send.
    established,
    /// The connection has ended: the peer has disconnected, the process of the peer has ended, or
    /// disconnect() is complete. The queue pair is in the error state, so outstanding requests
    /// complete with IBV_WC_WR_FLUSH_ERR.
    disconnected,
    /// An operation (resolve, connect, accept or join) has failed. ChannelEvent::error contains the
    /// errno value and the reason.
    failed,
    /// The RDMA device was removed. The program must destroy the connection, listener or multicast
    /// group to which ChannelEvent::id belongs.
    device_removed,
    /// MulticastGroup::join() is complete; the queue pair can send to the group.
    multicast_joined,
};
/// Returns the name of the enumerator, for example "resolved".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(EventType type) noexcept;

/// A connection that uses an event channel. The program either initiates the connection or receives
/// it as a request. The destructor disconnects an established connection and rejects a connection
/// request, without waiting for the peer. Objects can be moved but not copied. A connection keeps
/// its event channel alive.
class RDMABUF_EXPORT AsyncConnection {
  public:
    enum class State : std::uint8_t {
        /// The address and the route of the peer are being resolved.
        resolving,
        /// The address and the route are resolved: the program can call connect().
        resolved,
        /// A peer has requested the connection: the program can call accept() or reject().
        requested,
        /// connect() or accept() was called; the connection is not established yet.
        connecting,
        established,
        /// disconnect() was called; the connection has not ended yet.
        disconnecting,
        /// The connection has ended, failed or was rejected, or its device was removed. The program
        /// must destroy the AsyncConnection.
        closed,
    };

    /// Begins to resolve the address of a peer and the route to it. The result is the event
    /// `resolved` or `failed`.
    /// @param host       an IPv4 or IPv6 address, or a host name. The lookup of a name
    ///                   (getaddrinfo(3)) can block. Only the first address of a name is used.
    /// @param port       the port on which the peer listens
    /// @param timeout    the limit for resolving the address, and again for resolving the route
    /// @param user_data  the pointer that the events of this connection have in
    ///                   ChannelEvent::user_data
    /// @throws Error EINVAL if the host or RouteOptions::local_host has no address, or if their
    ///         addresses have different families; ENODEV if there is no RDMA device; EADDRNOTAVAIL
    ///         if local_host is not an address of this machine; EBADF if @p channel was closed,
    ///         released or moved from
    AsyncConnection(const EventChannel& channel, const std::string& host, std::uint16_t port,
                    std::chrono::milliseconds timeout, void* user_data = nullptr,
                    const RouteOptions& options = {});
    AsyncConnection(AsyncConnection&&) noexcept;
    AsyncConnection& operator=(AsyncConnection&&) noexcept;
    AsyncConnection(const AsyncConnection&) = delete;
    AsyncConnection& operator=(const AsyncConnection&) = delete;
    ~AsyncConnection();

    /// Returns the state of the connection.
    ///
    /// This function and the functions below, except native(), throw Error EBADF after a move from
    /// this object. A function that requires a certain state throws Error ENOTCONN in any other
    /// state; the error text contains the current state.
    [[nodiscard]] State state() const;

    /// Returns the device of the connection; throws Error ENOTCONN before the address is resolved.
    /// librdmacm owns the ibv_context: the program must not close it.
    [[nodiscard]] Context context() const;
    /// Returns the number of the port of context() that the connection uses; 0 before the address
    /// is resolved.
    [[nodiscard]] std::uint8_t port() const;
    /// Returns the private data that the peer passed to connect() or accept(). On InfiniBand and
    /// RoCE the result is padded with zeros.
    [[nodiscard]] std::span<const std::byte> private_data() const;

    /// Begins to connect the queue pair @p prepared. The result is the event `established` or
    /// `failed`. Requires the state `resolved`. See rdma_connect(3).
    /// @param prepared      a queue pair prepared on context() and port()
    /// @param private_data  at most 56 bytes for the peer
    /// @throws Error
    ///   - EMSGSIZE: the private data is too long; the state does not change
    ///   - EINVAL: the queue pair is of another context or not reliable connected; the state does
    ///     not change
    ///   - errno values of rdma_connect(3); the state is then `closed`
    void connect(PreparedQueuePair prepared, std::span<const std::byte> private_data = {});
    /// Begins to accept the request with the queue pair @p prepared. The result is the event
    /// `established` or `failed`. Requires the state `requested`. See rdma_accept(3).
    /// @param prepared      a queue pair prepared on context() and port(). Post receives before
    ///                      accept(), because the peer can send before `established` is reported.
    /// @param private_data  at most 196 bytes for the peer
    /// @throws Error
    ///   - EMSGSIZE: the private data is too long; the state does not change
    ///   - EINVAL: the queue pair is of another context or not reliable connected; the state does
    ///     not change
    ///   - ECONNRESET: the peer has withdrawn its request; the state is then `closed`
    ///   - errno values of rdma_accept(3) or ibv_modify_qp(3); the state is then `closed`
    void accept(PreparedQueuePair prepared, std::span<const std::byte> private_data = {});
    /// Rejects the request. Requires the state `requested`. See rdma_reject(3).
    /// @param private_data  at most 148 bytes for the peer. An AsyncConnection of the peer receives
    ///                      a `failed` event with ECONNREFUSED. The hint() of ChannelEvent::error
    ///                      quotes the data as text up to the first zero byte, but at most 80
    ///                      bytes.
    /// @throws Error EMSGSIZE if the private data is too long; the state then does not change.
    ///         Errno values of rdma_reject(3); the state is then `closed`
    void reject(std::span<const std::byte> private_data = {});
    /// Begins to disconnect and moves the queue pair to the error state. Requires the state
    /// `established`. The channel reports the event `disconnected` even if the peer does not
    /// answer.
    /// @throws Error with the errno value of rdma_disconnect(3) or ibv_modify_qp(3); the state is
    ///         then `closed`, and the event `disconnected` is not reported
    void disconnect();

    /// Returns the connected queue pair, which this object owns. Can be called after the event
    /// `established` until this object is destroyed.
    [[nodiscard]] QueuePair& queue_pair();

    [[nodiscard]] void* user_data() const;
    void set_user_data(void* user_data);
    /// Returns the rdma_cm_id, which this object owns, or nullptr after a move from this object.
    [[nodiscard]] rdma_cm_id* native() const noexcept;

  private:
    friend class detail::ListenerState;
    explicit AsyncConnection(std::unique_ptr<detail::ConnectionState> connection) noexcept;

    std::unique_ptr<detail::ConnectionState> connection_;
};
/// Returns the name of the enumerator, for example "resolving".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(AsyncConnection::State state) noexcept;

/// Listens for connection requests on an IP address and port. The event channel reports each
/// request as a `connect_request` event. A reported request remains valid after the listener is
/// destroyed. Objects can be moved but not copied. A listener keeps its event channel alive.
class RDMABUF_EXPORT AsyncListener {
  public:
    /// Starts to listen. See rdma_listen(3).
    /// @param host       a local address or name; empty for all addresses, IPv6 and IPv4
    /// @param port       the port; 0 for a free port, which port() returns
    /// @param backlog    the maximum number of requests that are not reported yet; further requests
    ///                   are rejected. The kernel limits the value to net.rdma_ucm.max_backlog.
    /// @param user_data  the pointer that the `connect_request` events have in
    ///                   ChannelEvent::user_data
    /// @throws Error with the errors of the constructor of Listener, and EBADF if @p channel was
    ///         closed, released or moved from
    AsyncListener(const EventChannel& channel, const std::string& host, std::uint16_t port,
                  int backlog = 1024, void* user_data = nullptr);
    AsyncListener(AsyncListener&&) noexcept;
    AsyncListener& operator=(AsyncListener&&) noexcept;
    AsyncListener(const AsyncListener&) = delete;
    AsyncListener& operator=(const AsyncListener&) = delete;
    ~AsyncListener();

    /// Returns the port number on which this object listens.
    /// @throws Error EBADF after a move from this object
    [[nodiscard]] std::uint16_t port() const;
    /// Returns the rdma_cm_id, which this object owns, or nullptr after a move from this object.
    [[nodiscard]] rdma_cm_id* native() const noexcept;

  private:
    std::unique_ptr<detail::ListenerState> listener_;
};

/// An event of a connection, listener or multicast group. The program need not acknowledge it: the
/// library has already called rdma_ack_cm_event(3).
struct ChannelEvent {
    EventType type{};
    /// The rdma_cm_id of the connection, listener or group that the event concerns; native() of
    /// that object returns the same pointer. For `connect_request`: the rdma_cm_id of the listener.
    rdma_cm_id* id = nullptr;
    /// The pointer `user_data` that the program passed to the constructor of the connection,
    /// listener or group, or to AsyncConnection::set_user_data(). For `connect_request`: the
    /// pointer of the listener.
    void* user_data = nullptr;
    /// The connection request; set for `connect_request` only. To accept the request later, move
    /// the request out of the event: the destructor of the event rejects a request that it still
    /// contains.
    std::optional<AsyncConnection> request = std::nullopt;
    /// The error; set for `failed` only. For example:
    ///   - ECONNREFUSED: the peer rejected the request (the error text has the reason), or no
    ///     program listens on the port
    ///   - ETIMEDOUT: the peer did not answer before the time limit
    ///   - ENETUNREACH, EHOSTUNREACH: there is no route to the peer, or librdmacm reports that the
    ///     peer cannot be reached
    ///   - ECONNRESET: the peer has withdrawn its request
    ///   - ENODEV: no RDMA device has a route to the peer
    std::optional<Error> error = std::nullopt;
};

/// An event channel of librdmacm that many connections share. See rdma_create_event_channel(3).
class RDMABUF_EXPORT EventChannel {
  public:
    /// Creates an event channel.
    /// @throws Error ENODEV if there is no RDMA device, rdma_ucm is not loaded, or opening
    ///         /dev/infiniband/rdma_cm fails with EPERM; EMFILE if the process has reached its
    ///         limit of descriptors
    EventChannel();
    EventChannel(EventChannel&&) noexcept = default;
    EventChannel& operator=(EventChannel&&) noexcept = default;
    EventChannel(const EventChannel&) = delete;
    EventChannel& operator=(const EventChannel&) = delete;
    ~EventChannel() = default;

    /// Returns the next event, or std::nullopt if there is no event. Does not block. This function
    /// also makes progress on the connections: it begins to resolve the route when the address is
    /// resolved, and moves queue pairs to RTS. Therefore, when fd() is readable, call next_event()
    /// until it returns std::nullopt. If an operation of a connection fails, the result is a
    /// `failed` event, not an exception.
    /// @throws Error EBADF if the channel was closed, released or moved from; other errno values
    ///         are those of rdma_get_cm_event(3)
    [[nodiscard]] std::optional<ChannelEvent> next_event();
    /// Waits for the next event, and makes progress on the connections as next_event() does. Throws
    /// the same errors as next_event().
    /// @param timeout  0 to return at once, wait_forever for no limit
    /// @return the event; std::nullopt if the timeout has expired
    [[nodiscard]] std::optional<ChannelEvent> wait(std::chrono::milliseconds timeout);

    /// Returns the file descriptor for epoll(7), which is readable when an event is pending. The
    /// descriptor is non-blocking. The channel owns the descriptor.
    /// @throws Error EBADF if the channel was closed, released or moved from
    [[nodiscard]] int fd() const;

    [[nodiscard]] rdma_event_channel* native() const noexcept { return handle_.get(); }
    /// Transfers ownership to the caller, which must destroy the returned channel after all
    /// connections, listeners and groups that use the channel.
    [[nodiscard]] rdma_event_channel* release() noexcept { return handle_.release(); }
    /// Destroys the channel.
    /// @throws Error EBUSY if connections, listeners or multicast groups still use the channel; the
    ///         channel then stays open
    void close() { handle_.close(); }

  private:
    friend class detail::AsyncId;

    detail::EventChannelHandle handle_;
};

} // namespace rdmabuf::cm
