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

/// Connects queue pairs by IP address, with librdmacm. rdma_cm(7).
///
/// librdmacm selects the device when it resolves an address, so both sides connect in two steps.
/// First, the program creates a Route or receives a ConnectionRequest. The program creates its
/// protection domain, completion queue, regions and queue pair on the Context of this object.
/// Second, the program connects this queue pair:
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
/// librdmacm sets GID, path, MTU and packet sequence numbers of the queue pair. Timeouts and
/// retries are those of QueuePair::prepare(), and so are the traffic class, the flow label and the
/// static rate if they are not the defaults of QueuePairOptions. Each limit on outstanding reads
/// and atomics is the smaller limit of the two sides. If both devices have ECE (enhanced connection
/// establishment) and the same vendor, the two sides agree on the ECE options that both support;
/// see PreparedQueuePair::set_ece(). Only reliable connected queue pairs can be connected. On iWARP
/// the side that called connect() must send the first message.
///
/// A timeout of wait_forever means that the call waits without limit.
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
/// A handle that owns an rdma_cm_id and keeps its event channel alive. In this header, each
/// rdma_cm_id has its own event channel. In cm_channel.hpp, many rdma_cm_ids share one event
/// channel.
using Id = rdmabuf::detail::unique_handle<rdma_cm_id, DestroyId, EventChannelHandle>;
} // namespace detail

/// A connected queue pair and its rdma_cm_id. The destructor disconnects but does not wait for the
/// confirmation of the peer.
class RDMABUF_EXPORT Connection {
  public:
    Connection(Connection&&) noexcept = default;
    Connection& operator=(Connection&&) noexcept = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection() { qp_.reset(); }

    [[nodiscard]] QueuePair& queue_pair() noexcept { return *qp_; }
    [[nodiscard]] const QueuePair& queue_pair() const noexcept { return *qp_; }
    /// Returns the private data that the peer passed to connect() or accept(). On InfiniBand and
    /// RoCE the result is padded with zeros, so it can be longer than the data of the peer.
    [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return private_data_; }

    /// Returns whether the connection has ended: the peer or this side (by disconnect()) has
    /// disconnected, the process of the peer has ended, or the device was removed. Does not wait.
    /// When the peer has disconnected, the next call of this function flushes the queue pair and
    /// sends a confirmation, for which the disconnect() call of the peer waits.
    [[nodiscard]] bool disconnected();
    /// Sends a disconnect request to the peer, flushes the queue pair, and waits until the peer
    /// confirms. The peer confirms when it calls disconnected() or disconnect(), or destroys its
    /// Connection. Outstanding requests complete with IBV_WC_WR_FLUSH_ERR. Does nothing if the
    /// connection has already ended.
    /// @throws Error ETIMEDOUT if the peer did not confirm in time, or another errno value of
    ///         rdma_disconnect(3); the queue pair is flushed also in these cases
    void disconnect(std::chrono::milliseconds timeout);

    [[nodiscard]] rdma_cm_id* native() const noexcept { return id_.get(); }

  private:
    friend class ConnectionRequest;
    friend class Route;
    Connection(detail::Id id, QueuePair qp, std::vector<std::byte> private_data) noexcept
        : qp_(std::move(qp)), id_(std::move(id)), private_data_(std::move(private_data)) {}

    /// The queue pair must be destroyed before the rdma_cm_id in id_. A move assignment replaces
    /// the members in the order of their declaration, so qp_ is declared before id_. A destructor
    /// destroys the members in the reverse order, so ~Connection() resets qp_ first.
    std::optional<QueuePair> qp_;
    detail::Id id_;
    std::vector<std::byte> private_data_;
    bool disconnected_ = false;
};

/// An incoming connection request that the program has neither accepted nor rejected yet. The
/// destructor rejects the request.
class RDMABUF_EXPORT ConnectionRequest {
  public:
    /// Returns the device that received the request. librdmacm owns the ibv_context: the program
    /// must not close it.
    [[nodiscard]] Context context() const { return Context::borrow(id_->verbs); }
    /// Returns the number of the device port that received the request.
    [[nodiscard]] std::uint8_t port() const noexcept { return id_->port_num; }
    /// Returns the private data that the peer passed to connect(). On InfiniBand and RoCE the
    /// result is padded with zeros.
    [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return private_data_; }

    /// Accepts the request with the queue pair @p prepared. See rdma_accept(3).
    /// @param prepared      a queue pair prepared on context() and port()
    /// @param private_data  at most 196 bytes for the peer
    /// @throws Error
    ///   - EMSGSIZE: the private data is too long
    ///   - EINVAL: the queue pair is of another context, or not reliable connected
    ///   - ECONNRESET: the peer has withdrawn its request
    ///   - ETIMEDOUT: the connection was not established within the timeout
    ///   - other errno values of rdma_accept(3) or ibv_modify_qp(3)
    ///
    /// After EMSGSIZE, or EINVAL for one of these reasons, the request can still be accepted or
    /// rejected. After other errors this object cannot be used any more. After any error, the queue
    /// pair @p prepared is destroyed.
    [[nodiscard]] Connection accept(PreparedQueuePair prepared,
                                    std::span<const std::byte> private_data,
                                    std::chrono::milliseconds timeout) &&;
    /// Rejects the request. See rdma_reject(3).
    /// @param reason  a text of at most 148 bytes. The Error of the peer quotes the text up to the
    ///                first zero byte, but at most 80 bytes
    /// @throws Error EMSGSIZE if the reason is too long; the request is then not rejected
    void reject(std::string_view reason) &&;

    [[nodiscard]] rdma_cm_id* native() const noexcept { return id_.get(); }

  private:
    friend class Listener;
    ConnectionRequest(detail::Id id, const rdma_conn_param& offer);

    detail::Id id_;
    std::vector<std::byte> private_data_;
    /// The maximum number of RDMA reads and atomics that the peer, as responder, processes at the
    /// same time.
    std::uint8_t served_by_peer_;
    /// The maximum number of RDMA reads and atomics that the peer, as initiator, has outstanding at
    /// the same time.
    std::uint8_t started_by_peer_;
};

/// Listens for connection requests on an IP address and port. See rdma_listen(3).
class RDMABUF_EXPORT Listener {
  public:
    /// Starts to listen.
    /// @param host     a local address or name; empty for all addresses, IPv6 and IPv4
    /// @param port     the port; 0 for a free port, which port() returns
    /// @param backlog  the maximum number of requests that wait for next(); further requests are
    ///                 rejected
    /// @throws Error
    ///   - EADDRINUSE: another listener uses the port
    ///   - EADDRNOTAVAIL: the host is not an address of this machine
    ///   - EACCES: a privileged port (by default below 1024) without CAP_NET_BIND_SERVICE
    ///   - ENODEV: no RDMA device, no RDMA device with that address, or rdma_ucm is not loaded
    ///   - EINVAL: the host has no address
    Listener(const std::string& host, std::uint16_t port, int backlog = 16);

    /// Returns the port number on which this object listens.
    /// @throws Error EBADF after a move from this object
    [[nodiscard]] std::uint16_t port() const;
    /// Waits for the next connection request.
    /// @throws Error ETIMEDOUT if no request arrived in time; ENODEV if the device was removed;
    ///         EBADF after a move from this object; other errno values of rdma_get_cm_event(3) or
    ///         rdma_migrate_id(3)
    [[nodiscard]] ConnectionRequest next(std::chrono::milliseconds timeout);

    [[nodiscard]] rdma_cm_id* native() const noexcept { return id_.get(); }

  private:
    detail::Id id_;
};

/// The local address and the type of service of a connection.
struct RouteOptions {
    /// A local IP address or host name, which selects the NIC. If the string is empty, the routing
    /// table selects the NIC. If several NICs are in the subnet of the peer, this is normally the
    /// same NIC for all connections.
    std::string local_host = {};
    /// The type of service of the IP packets, whose upper six bits are the DSCP. The type of
    /// service becomes the traffic class of the queue pair on RoCE, and the QoS class of the path
    /// on InfiniBand. The default is that of the kernel (default_roce_tos in configfs). See
    /// rdma_set_option(3).
    std::optional<std::uint8_t> type_of_service = std::nullopt;
};

/// A resolved route to a peer: the local device and port through which the peer's IP address is
/// reached. A Route has not sent a connection request to the peer yet.
class RDMABUF_EXPORT Route {
  public:
    /// Resolves the address of a peer and the route to it. See rdma_resolve_addr(3),
    /// rdma_resolve_route(3).
    /// @param host     a host name, or an IPv4 or IPv6 address. All addresses of a name are tried.
    ///                 The timeout does not limit the name lookup: see resolv.conf(5).
    /// @param port     the port on which the peer listens
    /// @param timeout  the limit for the whole resolution
    /// @throws Error
    ///   - EINVAL: the host or RouteOptions::local_host has no address, or the host has only
    ///     addresses of another family than local_host
    ///   - ETIMEDOUT: the address or the route was not resolved within the timeout
    ///   - ENETUNREACH, EHOSTUNREACH: there is no route to the host
    ///   - ENODEV: no RDMA device, no RDMA device that reaches the host, or rdma_ucm is not loaded
    ///   - EADDRNOTAVAIL: RouteOptions::local_host is not an address of this machine
    Route(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout,
          const RouteOptions& options = {});

    /// Returns the local device through which the peer is reached. librdmacm owns the ibv_context:
    /// the program must not close it.
    [[nodiscard]] Context context() const { return Context::borrow(id_->verbs); }
    /// Returns the number of the port of context() through which the peer is reached.
    [[nodiscard]] std::uint8_t port() const noexcept { return id_->port_num; }

    /// Connects the queue pair @p prepared to the listener of the peer. See rdma_connect(3).
    /// @param prepared      a queue pair prepared on context() and port()
    /// @param private_data  at most 56 bytes for the peer
    /// @throws Error
    ///   - EMSGSIZE: the private data is too long
    ///   - EINVAL: the queue pair is of another context, or not reliable connected
    ///   - ECONNREFUSED: the peer rejected the request (the error text has the reason), or no
    ///     program listens on the port
    ///   - ETIMEDOUT: the connection was not established within the timeout
    ///
    /// After EMSGSIZE, or EINVAL for one of these reasons, connect() can be called again. After
    /// other errors this object cannot be used any more. After any error, the queue pair @p
    /// prepared is destroyed.
    [[nodiscard]] Connection connect(PreparedQueuePair prepared,
                                     std::span<const std::byte> private_data,
                                     std::chrono::milliseconds timeout) &&;

    [[nodiscard]] rdma_cm_id* native() const noexcept { return id_.get(); }

  private:
    detail::Id id_;
};

} // namespace rdmabuf::cm
