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
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair.hpp>

/// Connections by IP address, through librdmacm. rdma_cm(7).
///
/// The device is known only once an address has been resolved, so both sides go in two steps: first
/// an object that knows its Context, on which the program makes its protection domain, completion
/// queue and regions, then the connection with a queue pair prepared from those.
namespace rdmabuf::cm {

namespace detail {
struct DestroyEventChannel {
    static constexpr const char* name = "rdma_destroy_event_channel";
    static int call(rdma_event_channel* channel) noexcept;
};
struct DestroyId {
    static constexpr const char* name = "rdma_destroy_id";
    static int call(rdma_cm_id* id) noexcept;
};
using EventChannel = rdmabuf::detail::shared_handle<rdma_event_channel, DestroyEventChannel>;
using Id = rdmabuf::detail::unique_handle<rdma_cm_id, DestroyId, EventChannel>;
} // namespace detail

/// A connected pair. Destroying it disconnects.
class Connection {
  public:
    Connection(Connection&&) noexcept = default;
    Connection& operator=(Connection&&) noexcept;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection();

    [[nodiscard]] QueuePair& queue_pair() noexcept { return *qp_; }
    [[nodiscard]] const QueuePair& queue_pair() const noexcept { return *qp_; }
    /// What the peer sent along when connecting. InfiniBand and RoCE pad it with zeros, so it may
    /// be longer than what was sent.
    [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return private_data_; }

    /// Whether the peer has disconnected (or the device went away). Does not wait.
    [[nodiscard]] bool disconnected();
    /// Tells the peer, flushes the queue pair, and waits until the peer has answered.
    /// @throws Error ETIMEDOUT when it did not; the queue pair is flushed all the same.
    void disconnect(std::chrono::milliseconds timeout);

    [[nodiscard]] rdma_cm_id* native() const noexcept { return id_.get(); }

  private:
    friend class ConnectionRequest;
    friend class Route;
    Connection(detail::Id id, QueuePair qp, std::vector<std::byte> private_data)
        : id_(std::move(id)), qp_(std::move(qp)), private_data_(std::move(private_data)) {}

    detail::Id id_;
    std::optional<QueuePair> qp_; // destroyed before the id it is connected through
    std::vector<std::byte> private_data_;
    bool disconnected_ = false;
};

/// An incoming connection that is neither accepted nor rejected. Destroying it rejects.
class ConnectionRequest {
  public:
    ConnectionRequest(ConnectionRequest&&) noexcept = default;
    ConnectionRequest& operator=(ConnectionRequest&&) noexcept;
    ConnectionRequest(const ConnectionRequest&) = delete;
    ConnectionRequest& operator=(const ConnectionRequest&) = delete;
    ~ConnectionRequest();

    /// The device it came in on; closed by librdmacm.
    [[nodiscard]] Context context() const { return Context::borrow(id_->verbs); }
    /// The port it came in on.
    [[nodiscard]] std::uint8_t port() const noexcept { return id_->port_num; }
    [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return private_data_; }

    /// @param prepared      made on context(); port, GID and path come from the connection
    /// @param private_data  up to 196 bytes for the peer
    /// @throws Error EMSGSIZE for more, ETIMEDOUT, ECONNRESET when the peer gave up meanwhile
    [[nodiscard]] Connection accept(PreparedQueuePair prepared,
                                    std::span<const std::byte> private_data,
                                    std::chrono::milliseconds timeout) &&;

  private:
    friend class Listener;
    ConnectionRequest(detail::Id id, std::vector<std::byte> private_data, std::uint8_t depth,
                      std::uint8_t resources)
        : id_(std::move(id)),
          private_data_(std::move(private_data)),
          initiator_depth_(depth),
          responder_resources_(resources) {}

    detail::Id id_;
    std::vector<std::byte> private_data_;
    std::uint8_t initiator_depth_;
    std::uint8_t responder_resources_;
};

/// Waits for connections at an address.
class Listener {
  public:
    /// @param host  an address or a name of this machine; empty for any
    /// @param port  0 for one that is free
    /// @throws Error EADDRINUSE, EADDRNOTAVAIL, ENODEV (no RDMA device, or rdma_ucm is not loaded),
    ///         EINVAL for a host that does not resolve
    Listener(const std::string& host, std::uint16_t port, int backlog = 16);

    /// The port it listens at.
    [[nodiscard]] std::uint16_t port() const noexcept;
    /// The next request. @throws Error ETIMEDOUT
    [[nodiscard]] ConnectionRequest next(std::chrono::milliseconds timeout);

    [[nodiscard]] rdma_cm_id* native() const noexcept { return id_.get(); }

  private:
    detail::Id id_;
};

/// The way to a peer: its address is resolved, the device to reach it by is known.
class Route {
  public:
    /// @throws Error EINVAL for a host that does not resolve, ETIMEDOUT, EHOSTUNREACH, ENODEV when
    /// no
    ///         RDMA device leads there
    Route(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout);

    /// The device that leads there; closed by librdmacm.
    [[nodiscard]] Context context() const { return Context::borrow(id_->verbs); }
    [[nodiscard]] std::uint8_t port() const noexcept { return id_->port_num; }

    /// @param prepared      made on context(); port, GID and path come from the route
    /// @param private_data  up to 56 bytes for the peer
    /// @throws Error EMSGSIZE for more, ECONNREFUSED when it rejects (or does not listen),
    /// ETIMEDOUT
    [[nodiscard]] Connection connect(PreparedQueuePair prepared,
                                     std::span<const std::byte> private_data,
                                     std::chrono::milliseconds timeout) &&;

    [[nodiscard]] rdma_cm_id* native() const noexcept { return id_.get(); }

  private:
    detail::Id id_;
};

} // namespace rdmabuf::cm
