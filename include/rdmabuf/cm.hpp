// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/queue_pair.hpp>

/// Connections by IP address, through librdmacm. rdma_cm(7).
///
/// The device is known only once an address has been resolved, so both sides go in two steps: first
/// an object that knows its Context, on which the program makes its protection domain, completion
/// queue and regions, then the connection with a queue pair prepared from those:
///
///     cm::Route route("192.0.2.1", 4711, 5s);              cm::Listener listener("", 4711);
///     ProtectionDomain pd(route.context());                auto request = listener.next(60s);
///     …                                                    …
///     auto prepared = QueuePair::prepare(                  auto prepared = QueuePair::prepare(
///         pd, {…, .port = route.port()});                      pd, {…, .port = request.port()});
///     auto connection =                                    auto connection =
///         std::move(route).connect(                            std::move(request).accept(
///             std::move(prepared), {}, 5s);                        std::move(prepared), {}, 5s);
///
/// The connection decides on GID, path, MTU and sequence numbers; timeouts, retries, and the limits
/// on reads and atomics (or the peer's, if smaller) are those that the queue pair was prepared
/// with. Reliable connected queue pairs only. On iWARP the side that connected must send first.
///
/// Wherever a timeout is asked for, wait_forever waits.
namespace rdmabuf::cm {

namespace detail {
struct RDMABUF_EXPORT DestroyEventChannel {
    static constexpr const char* name = "rdma_destroy_event_channel";
    static int call(rdma_event_channel* channel) noexcept;
};
struct RDMABUF_EXPORT DestroyId {
    static constexpr const char* name = "rdma_destroy_id";
    static int call(rdma_cm_id* id) noexcept;
};
using EventChannelHandle = rdmabuf::detail::shared_handle<rdma_event_channel, DestroyEventChannel>;
/// Holds its event channel. The classes of this header use one event channel for each id, those of
/// cm_channel.hpp one for many.
using Id = rdmabuf::detail::unique_handle<rdma_cm_id, DestroyId, EventChannelHandle>;
} // namespace detail

/// A connected pair. Destroying it disconnects, without waiting for the peer.
class RDMABUF_EXPORT Connection {
  public:
    Connection(Connection&&) noexcept = default;
    Connection& operator=(Connection&&) noexcept = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection() { qp_.reset(); }

    [[nodiscard]] QueuePair& queue_pair() noexcept { return *qp_; }
    [[nodiscard]] const QueuePair& queue_pair() const noexcept { return *qp_; }
    /// What the peer sent along when it connected, or accepted. InfiniBand and RoCE pad it with
    /// zeros, so it may be longer than what was sent.
    [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return private_data_; }

    /// Whether the peer has disconnected, its process has ended, or the device went away. Does not
    /// wait. The first time that it is true, the queue pair is flushed and the peer, which may be
    /// waiting for it in disconnect(), is answered.
    [[nodiscard]] bool disconnected();
    /// Tells the peer, flushes the queue pair, and waits until the peer has answered: until it has
    /// called disconnected() or disconnect(), or destroyed its Connection. What is still to be sent
    /// is lost. Does nothing when disconnected already.
    /// @throws Error ETIMEDOUT when the peer did not answer; the queue pair is flushed all the
    /// same.
    void disconnect(std::chrono::milliseconds timeout);

    [[nodiscard]] rdma_cm_id* native() const noexcept { return id_.get(); }

  private:
    friend class ConnectionRequest;
    friend class Route;
    Connection(detail::Id id, QueuePair qp, std::vector<std::byte> private_data) noexcept
        : qp_(std::move(qp)), id_(std::move(id)), private_data_(std::move(private_data)) {}

    /// Goes before the id it is connected through: first in assignments, and in the destructor.
    std::optional<QueuePair> qp_;
    detail::Id id_;
    std::vector<std::byte> private_data_;
    bool disconnected_ = false;
};

/// An incoming connection that is neither accepted nor rejected. Destroying it rejects.
class RDMABUF_EXPORT ConnectionRequest {
  public:
    /// The device it came in on; closed by librdmacm when the program ends.
    [[nodiscard]] Context context() const { return Context::borrow(id_->verbs); }
    /// The port it came in on.
    [[nodiscard]] std::uint8_t port() const noexcept { return id_->port_num; }
    /// What the peer sent along, padded with zeros on InfiniBand and RoCE.
    [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return private_data_; }

    /// @param prepared      made on context() and port()
    /// @param private_data  up to 196 bytes for the peer
    /// @throws Error EMSGSIZE for more; EINVAL for a queue pair of another context or type;
    ///         ECONNRESET when the peer gave up meanwhile; ETIMEDOUT. After EMSGSIZE and EINVAL the
    ///         request is still there, after the others it is gone.
    [[nodiscard]] Connection accept(PreparedQueuePair prepared,
                                    std::span<const std::byte> private_data,
                                    std::chrono::milliseconds timeout) &&;
    /// Rejects, and tells the peer why: the text appears in its Error.
    /// @param reason  up to 148 bytes
    /// @throws Error EMSGSIZE for more; the request is still there then
    void reject(std::string_view reason) &&;

    [[nodiscard]] rdma_cm_id* native() const noexcept { return id_.get(); }

  private:
    friend class Listener;
    ConnectionRequest(detail::Id id, const rdma_conn_param& offer);

    detail::Id id_;
    std::vector<std::byte> private_data_;
    /// What the peer would have at most: reads and atomics that it serves, and that it starts.
    std::uint8_t served_by_peer_;
    std::uint8_t started_by_peer_;
};

/// Waits for connections at an address.
class RDMABUF_EXPORT Listener {
  public:
    /// @param host     an address or a name of this machine; empty for any, IPv6 and IPv4
    /// @param port     0 for one that is free
    /// @param backlog  how many requests may wait for next(); more are rejected
    /// @throws Error EADDRINUSE, EADDRNOTAVAIL when the host is not this machine, EACCES for a port
    ///         below 1024, ENODEV (no RDMA device, none with that address, or rdma_ucm is not
    ///         loaded), EINVAL for a host that has no address
    Listener(const std::string& host, std::uint16_t port, int backlog = 16);

    /// The port it listens at.
    [[nodiscard]] std::uint16_t port() const noexcept;
    /// The next request. @throws Error ETIMEDOUT, ENODEV when the device went away
    [[nodiscard]] ConnectionRequest next(std::chrono::milliseconds timeout);

    [[nodiscard]] rdma_cm_id* native() const noexcept { return id_.get(); }

  private:
    detail::Id id_;
};

/// The way to a peer: its address is resolved, the device to reach it by is known. Whether the peer
/// is there is not known yet.
class RDMABUF_EXPORT Route {
  public:
    /// @param host  name or address, IPv4 or IPv6; every address of a name is tried. The lookup of
    /// a
    ///              name has limits of its own: resolv.conf(5).
    /// @throws Error EINVAL for a host that has no address; ETIMEDOUT; ENETUNREACH or EHOSTUNREACH;
    ///         ENODEV when no RDMA device leads there, there is none, or rdma_ucm is not loaded
    Route(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout);

    /// The device that leads there; closed by librdmacm when the program ends.
    [[nodiscard]] Context context() const { return Context::borrow(id_->verbs); }
    /// The device's port that leads there.
    [[nodiscard]] std::uint8_t port() const noexcept { return id_->port_num; }

    /// @param prepared      made on context() and port()
    /// @param private_data  up to 56 bytes for the peer
    /// @throws Error EMSGSIZE for more; EINVAL for a queue pair of another context or type;
    ///         ECONNREFUSED when the peer rejects (the hint has its reason) or nobody listens;
    ///         ETIMEDOUT. After EMSGSIZE and EINVAL the route is still there, after the others it
    ///         is gone.
    [[nodiscard]] Connection connect(PreparedQueuePair prepared,
                                     std::span<const std::byte> private_data,
                                     std::chrono::milliseconds timeout) &&;

    [[nodiscard]] rdma_cm_id* native() const noexcept { return id_.get(); }

  private:
    detail::Id id_;
};

} // namespace rdmabuf::cm
