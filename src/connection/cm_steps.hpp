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

namespace rdmabuf::cm::detail {

// Maximum sizes of private data in bytes. rdma_connect(3) and rdma_accept(3), and for rejections
// IB_CM_REJ_PRIVATE_DATA_SIZE in include/rdma/ib_cm.h.
inline constexpr std::size_t connect_data_limit = 56;
inline constexpr std::size_t accept_data_limit = 196;
inline constexpr std::size_t reject_data_limit = 148;

/// Creates an event channel whose descriptor does not block.
/// @throws Error ENODEV without /dev/infiniband/rdma_cm or without an RDMA device
[[nodiscard]] EventChannelHandle make_channel();
/// Creates an id whose events go to @p channel.
/// @param context  rdma_cm_id::context of the id
[[nodiscard]] Id make_id(EventChannelHandle channel, rdma_port_space space = RDMA_PS_TCP,
                         void* context = nullptr);

/// Creates an id that listens. See Listener for the parameters and errors.
/// @param make  creates the id; called once for each address that is tried
[[nodiscard]] Id listen(const std::string& host, std::uint16_t port, int backlog,
                        const std::function<Id()>& make);

/// A timeout for librdmacm in milliseconds; negative timeouts become the longest one.
[[nodiscard]] int as_int(std::chrono::milliseconds time) noexcept;

[[nodiscard]] std::vector<std::byte> copy_private_data(const rdma_conn_param& param);
/// @throws Error EMSGSIZE when @p size is above @p limit
void check_private_data(std::size_t size, std::size_t limit, const char* function);
/// @throws Error EINVAL when @p prepared is not RC or not of the context of @p id; EBADF when it
///         has no queue pair
void check_prepared(const PreparedQueuePair& prepared, const Id& id, const char* function);

/// Takes a prepared queue pair to RTS on the path of @p id. The attributes that concern only this
/// side are those that the queue pair was prepared with: librdmacm would let peers wait 655 ms for
/// a receive (rdma_connect(3)).
void make_ready(const Id& id, const PreparedQueuePair& prepared);

/// The parameters of rdma_connect(3) or rdma_accept(3). They refer to @p private_data.
[[nodiscard]] rdma_conn_param conn_param(const PreparedQueuePair& prepared,
                                         std::span<const std::byte> private_data);
/// The address of the peer as text, for errors.
[[nodiscard]] std::string peer_of(const Id& id);

/// Whether the peer has withdrawn its connection request. No event reports it before the request is
/// accepted (drivers/infiniband/core/ucma.c, ucma_event_handler), but the kernel has no path to the
/// peer any more.
[[nodiscard]] bool has_given_up(const Id& id) noexcept;

/// Calls @p step, which accepts the connection request of @p id, and turns the errors that mean
/// that the peer has withdrawn the request into ECONNRESET.
template <class Step>
void explain_withdrawal(const Id& id, const std::string& peer, const Step& step) {
    try {
        step();
    } catch (const Error& error) {
        if (error.error() == ECONNREFUSED || (error.error() == EINVAL && has_given_up(id))) {
            throw Error(ECONNRESET, "rdma_accept", peer + " gave up before it was accepted");
        }
        throw;
    }
}

} // namespace rdmabuf::cm::detail
