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

/// Many connections of one thread, without blocking: one event channel for all of them, whose
/// descriptor goes into epoll(7) beside the program's other descriptors.
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
/// No function of this header waits, except EventChannel::wait() and the name lookup of a host that
/// is not an address. The functions that begin a step return at once; an event reports the end of
/// the step. Reliable connected queue pairs only, as in cm.hpp; cm_multicast.hpp is for datagrams.
///
/// A channel and its objects are used by one thread at a time. Different channels are independent.
namespace rdmabuf::cm {

namespace detail {
class AsyncId;
class ConnectionState;
class ListenerState;
} // namespace detail

class EventChannel;

/// What an event reports.
enum class EventType : std::uint8_t {
    /// Address and route are resolved: the device is known. connect() or MulticastGroup::join() is
    /// next.
    resolved,
    /// A peer wants to connect to a listener: ChannelEvent::request holds the connection.
    connect_request,
    /// The queue pair is connected and can send.
    established,
    /// The peer has disconnected or ended, or has answered disconnect(). The queue pair is in the
    /// error state, so outstanding requests complete with IBV_WC_WR_FLUSH_ERR.
    disconnected,
    /// A step failed: ChannelEvent::error has the reason.
    failed,
    /// The device was removed. The object can only be destroyed.
    device_removed,
    /// MulticastGroup::join() has ended; the group can be used.
    multicast_joined,
};
/// "resolved", "connect_request" and so on.
[[nodiscard]] RDMABUF_EXPORT const char* to_string(EventType type) noexcept;

/// A connection on an event channel, which the program makes or accepts. Destroying it disconnects
/// an established connection and rejects a request, without waiting for the peer. Moves only; holds
/// its event channel.
class RDMABUF_EXPORT AsyncConnection {
  public:
    enum class State : std::uint8_t {
        /// The constructor has begun to resolve the address.
        resolving,
        /// connect() is next.
        resolved,
        /// The connection is a request of a peer: accept() or reject() is next.
        requested,
        /// connect() or accept() has begun.
        connecting,
        established,
        /// disconnect() has begun.
        disconnecting,
        /// The connection has ended, failed or was rejected. It can only be destroyed.
        closed,
    };

    /// Begins to resolve address and route of a peer. `resolved` or `failed` follows.
    /// @param host       address, IPv4 or IPv6, or name. getaddrinfo(3) looks a name up, which can
    ///                   block, and only the first address of a name is used.
    /// @param timeout    limit of each of the two steps, address and route
    /// @param user_data  ChannelEvent::user_data of the events of this connection
    /// @throws Error EINVAL for a host that has no address; ENODEV without an RDMA device
    AsyncConnection(const EventChannel& channel, const std::string& host, std::uint16_t port,
                    std::chrono::milliseconds timeout, void* user_data = nullptr);
    AsyncConnection(AsyncConnection&&) noexcept;
    AsyncConnection& operator=(AsyncConnection&&) noexcept;
    AsyncConnection(const AsyncConnection&) = delete;
    AsyncConnection& operator=(const AsyncConnection&) = delete;
    ~AsyncConnection();

    /// The functions below throw Error EBADF after a move from this object, and Error ENOTCONN in a
    /// state in which the function does not apply. The hint names the state.
    [[nodiscard]] State state() const;

    /// The device of the connection. librdmacm closes it when the program ends.
    [[nodiscard]] Context context() const;
    /// The port of the device.
    [[nodiscard]] std::uint8_t port() const;
    /// The private data of the peer: of its request, or of its reply. InfiniBand and RoCE pad it
    /// with zeros.
    [[nodiscard]] std::span<const std::byte> private_data() const;

    /// Begins to connect. `established` or `failed` follows. In the state `resolved` only.
    /// @param prepared      made on context() and port()
    /// @param private_data  up to 56 bytes for the peer
    /// @throws Error EMSGSIZE for more private data, and EINVAL for a queue pair of another context
    ///         or type; the state does not change. After another Error the state is `closed`.
    void connect(PreparedQueuePair prepared, std::span<const std::byte> private_data = {});
    /// Begins to accept the request. `established` or `failed` follows. In the state `requested`
    /// only.
    /// @param prepared      made on context() and port(), with receives posted: the peer can send
    ///                      before `established` is reported
    /// @param private_data  up to 196 bytes for the peer
    /// @throws Error as connect(), and ECONNRESET when the peer has withdrawn its request
    void accept(PreparedQueuePair prepared, std::span<const std::byte> private_data = {});
    /// Rejects the request. In the state `requested` only.
    /// @param private_data  up to 148 bytes for the peer. Its `failed` event has ECONNREFUSED, and
    ///                      the hint quotes the data as text.
    /// @throws Error EMSGSIZE for more private data; the state does not change
    void reject(std::span<const std::byte> private_data = {});
    /// Begins to disconnect and moves the queue pair to the error state. `disconnected` follows,
    /// also when the peer does not answer. In the state `established` only.
    void disconnect();

    /// The connected queue pair. From `established` on, until this is destroyed.
    [[nodiscard]] QueuePair& queue_pair();

    [[nodiscard]] void* user_data() const;
    void set_user_data(void* user_data);
    /// nullptr after a move from this object.
    [[nodiscard]] rdma_cm_id* native() const noexcept;

  private:
    friend class detail::ListenerState;
    explicit AsyncConnection(std::unique_ptr<detail::ConnectionState> connection) noexcept;

    std::unique_ptr<detail::ConnectionState> connection_;
};
/// "resolving", "resolved" and so on.
[[nodiscard]] RDMABUF_EXPORT const char* to_string(AsyncConnection::State state) noexcept;

/// Listens at an address. Each peer that wants to connect is a `connect_request` event of the
/// channel. Moves only; holds its event channel. Requests that were reported outlive the listener.
class RDMABUF_EXPORT AsyncListener {
  public:
    /// @param backlog    maximum number of requests that were not yet reported; more are rejected.
    ///                   The kernel limits it to net.rdma_ucm.max_backlog.
    /// @param user_data  ChannelEvent::user_data of the requests
    /// @throws Error as Listener
    AsyncListener(const EventChannel& channel, const std::string& host, std::uint16_t port,
                  int backlog = 1024, void* user_data = nullptr);
    AsyncListener(AsyncListener&&) noexcept;
    AsyncListener& operator=(AsyncListener&&) noexcept;
    AsyncListener(const AsyncListener&) = delete;
    AsyncListener& operator=(const AsyncListener&) = delete;
    ~AsyncListener();

    /// The port it listens at. @throws Error EBADF after a move from this object
    [[nodiscard]] std::uint16_t port() const;
    /// nullptr after a move from this object.
    [[nodiscard]] rdma_cm_id* native() const noexcept;

  private:
    std::unique_ptr<detail::ListenerState> listener_;
};

/// An event of one connection, listener or multicast group. It is acknowledged already.
struct ChannelEvent {
    EventType type{};
    /// The id of the object: native() of it. Of a `connect_request`, that of the listener.
    rdma_cm_id* id = nullptr;
    /// The user_data of the object. Of a `connect_request`, that of the listener.
    void* user_data = nullptr;
    /// With `connect_request` only. The connection is rejected if it is still here when the event
    /// is destroyed.
    std::optional<AsyncConnection> request = std::nullopt;
    /// With `failed` only:
    ///   - ECONNREFUSED: the peer rejected (the hint has its reason), or nobody listens
    ///   - ETIMEDOUT, ENETUNREACH, EHOSTUNREACH: the peer did not answer, or there is no route
    ///   - ECONNRESET: the peer gave up before its request was accepted
    ///   - ENODEV: no RDMA device has a route to the peer
    std::optional<Error> error = std::nullopt;
};

/// An event channel of librdmacm that many connections share. rdma_create_event_channel(3).
class RDMABUF_EXPORT EventChannel {
  public:
    /// @throws Error ENODEV when there is no RDMA device or rdma_ucm is not loaded, EMFILE at the
    ///         process's limit of descriptors
    EventChannel();
    EventChannel(EventChannel&&) noexcept = default;
    EventChannel& operator=(EventChannel&&) noexcept = default;
    EventChannel(const EventChannel&) = delete;
    EventChannel& operator=(const EventChannel&) = delete;
    ~EventChannel() = default;

    /// The next event, or nothing when there is none. Does not block. It also makes progress on the
    /// connections: it resolves the route after the address, and takes queue pairs to the ready
    /// state. So call it until it returns nothing whenever fd() is readable.
    /// @throws Error EBADF when the channel was closed, released or moved from; the errno of
    ///         rdma_get_cm_event(3). A failed step of a connection is an event, not an exception.
    [[nodiscard]] std::optional<ChannelEvent> next_event();
    /// As next_event(), but waits for an event.
    /// @param timeout  zero polls, wait_forever waits
    [[nodiscard]] std::optional<ChannelEvent> wait(std::chrono::milliseconds timeout);

    /// The descriptor, which is readable when there is an event and does not block: for epoll(7).
    /// The channel owns it.
    /// @throws Error EBADF when the channel was closed, released or moved from
    [[nodiscard]] int fd() const;

    [[nodiscard]] rdma_event_channel* native() const noexcept { return handle_.get(); }
    /// The caller destroys the channel from now on, after its connections.
    [[nodiscard]] rdma_event_channel* release() noexcept { return handle_.release(); }
    /// @throws Error EBUSY while connections, listeners or multicast groups use it
    void close() { handle_.close(); }

  private:
    friend class detail::AsyncId;

    detail::EventChannelHandle handle_;
};

} // namespace rdmabuf::cm
