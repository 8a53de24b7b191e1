// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/cm.hpp>
#include <rdmabuf/queue_pair.hpp>

#include "connection/host_address.hpp"

namespace rdmabuf::cm::detail {

/// Maximum size in bytes of the private data of rdma_connect(3).
inline constexpr std::size_t connect_data_limit = 56;
/// Maximum size in bytes of the private data of rdma_accept(3).
inline constexpr std::size_t accept_data_limit = 196;
/// Maximum size in bytes of the private data of rdma_reject(3): IB_CM_REJ_PRIVATE_DATA_SIZE in the
/// kernel's include/rdma/ib_cm.h.
inline constexpr std::size_t reject_data_limit = 148;

/// Creates an event channel whose file descriptor is non-blocking.
/// @throws Error ENODEV if /dev/infiniband/rdma_cm is missing, if opening it fails with EPERM (as
///         in a container that may not use it), or if there is no RDMA device; otherwise the errno
///         value of rdma_create_event_channel(3)
[[nodiscard]] EventChannelHandle make_channel();
/// Creates an id whose events are reported on @p channel.
/// @param context  the value of rdma_cm_id::context
[[nodiscard]] Id make_id(EventChannelHandle channel, rdma_port_space space = RDMA_PS_TCP,
                         void* context = nullptr);

/// Begins to resolve @p destination by rdma_resolve_addr(3), with the options of cm::Route.
/// @param source  the local address; nullptr if the routing table selects the address
void begin_to_resolve(const Id& id, const addrinfo* source, sockaddr& destination,
                      const RouteOptions& options, std::chrono::milliseconds timeout);
/// Returns the addresses of RouteOptions::local_host; null if local_host is empty.
[[nodiscard]] rdmabuf::detail::HostAddresses local_addresses(const RouteOptions& options);

/// Creates an id that listens. cm::Listener documents the parameters and errors.
/// @param make  a function that creates the id; called once for each address that is tried
[[nodiscard]] Id listen(const std::string& host, std::uint16_t port, int backlog,
                        const std::function<Id()>& make);

/// Converts a timeout to milliseconds for librdmacm. A timeout that is negative or too long for an
/// int becomes the longest timeout.
[[nodiscard]] int as_int(std::chrono::milliseconds time) noexcept;

[[nodiscard]] std::vector<std::byte> copy_private_data(const rdma_conn_param& param);
/// Checks the size of private data.
/// @throws Error EMSGSIZE if @p size is larger than @p limit
void check_private_data(std::size_t size, std::size_t limit, const char* function);
/// Checks that @p prepared can be connected through @p id.
/// @throws Error EINVAL if the queue pair is not RC or belongs to another context than @p id; EBADF
///         if @p prepared was moved from
void check_prepared(const PreparedQueuePair& prepared, const Id& id, const char* function);

/// Offers the ECE options of the queue pair to the peer, in the next rdma_connect(3) or
/// rdma_accept(3) of @p id. Does nothing if the device has no ECE.
void offer_ece(const Id& id, const PreparedQueuePair& prepared) noexcept;

/// Moves a prepared queue pair to RTS (ready to send), on the path of the connection of @p id. The
/// timeout, the retry counts and the RNR timer are those of @p prepared: librdmacm would set the
/// RNR timer to 655 ms. The traffic class, the flow label and the static rate are also those of
/// @p prepared, except a value that is the default of QueuePairOptions. The ECE options are those
/// that the peer has offered, if both devices have the same vendor.
void make_ready(const Id& id, const PreparedQueuePair& prepared);

/// Returns the parameters for rdma_connect(3) or rdma_accept(3). The result points to the bytes of
/// @p private_data.
[[nodiscard]] rdma_conn_param conn_param(const PreparedQueuePair& prepared,
                                         std::span<const std::byte> private_data);
/// Returns the address of the peer as text for error messages.
[[nodiscard]] std::string peer_of(const Id& id);

/// Returns true if the peer has withdrawn its connection request. For a withdrawn request, the
/// kernel reports no event (drivers/infiniband/core/ucma.c, ucma_event_handler), but
/// rdma_init_qp_attr() fails with EINVAL.
[[nodiscard]] bool has_given_up(const Id& id) noexcept;

/// Calls the function @p step, which accepts the connection request of @p id. If @p step fails
/// because the peer has withdrawn the request, throws an Error ECONNRESET.
template <class Step>
void explain_withdrawal(const Id& id, const std::string& peer, const Step& step) {
    try {
        step();
    } catch (const Error& error) {
        if (error.error() == ECONNREFUSED || (error.error() == EINVAL && has_given_up(id))) {
            throw Error(ECONNRESET, "rdma_accept",
                        peer + " withdrew its connection request before it was accepted");
        }
        throw;
    }
}

} // namespace rdmabuf::cm::detail
