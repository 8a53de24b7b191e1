// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include <rdmabuf/transport.hpp>

namespace nccl_net {

/// An endpoint of one device, and its lock. Every call of the endpoint, and of its channels,
/// listeners and connectors, needs the lock.
///
/// NCCL calls the plugin from several threads. Each NCCL communicator has a service thread, which
/// connects and registers memory, and a progress thread, which sends, receives and tests. Both
/// threads may use the same connection at the same time. The progress thread serves all connections
/// of its NCCL communicator. Therefore:
///   - There is one endpoint for each NCCL communicator, device and traffic class. The progress
///     threads of different NCCL communicators then do not wait for each other, and one call of
///     test() completes the requests of all connections. An endpoint for each connection would cost
///     a protection domain, a completion queue, a shared receive queue and about 0.4 MB of buffers
///     for each connection, and each buffer would be registered once for each connection.
///   - A lock is needed, because the service thread connects while the progress thread is busy. In
///     steady state the progress thread alone takes the lock. Memory is registered without it, and
///     queue pairs are created and connected without it.
/// NCCL describes its communicators to the plugin from version 11 on. In older versions all NCCL
/// communicators of the process share the endpoint of a device.
struct SharedEndpoint {
    /// @param lock  the mutex to which EndpointOptions::mutex of @p opened points; this object
    ///              takes ownership of it
    SharedEndpoint(std::unique_ptr<std::mutex> lock, rdmabuf::transport::Endpoint opened) noexcept
        : owned_mutex(std::move(lock)), mutex(*owned_mutex), endpoint(std::move(opened)) {}

    std::unique_ptr<std::mutex> owned_mutex;
    std::mutex& mutex;
    rdmabuf::transport::Endpoint endpoint;
    /// Set to false when the close of a connection has timed out after EndpointOptions::linger. The
    /// other connections are then closed without waiting, because NCCL closes its connections one
    /// after another, and hundreds of them can lead to an unreachable peer.
    bool lingers = true;
};

} // namespace nccl_net
