// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <rdmabuf/cm_channel.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/work_request.hpp>

namespace rdmabuf::cm {

namespace detail {
class MulticastState;
} // namespace detail

/// The Q_Key of multicast groups of librdmacm: QueuePairOptions::qkey of their queue pairs.
inline constexpr std::uint32_t multicast_qkey = RDMA_UDP_QKEY;

enum class MulticastRole : std::uint8_t {
    /// The queue pair receives the datagrams of the group, also its own, and can send.
    send_and_receive,
    /// The queue pair only sends to the group.
    send,
};

/// A multicast group for datagrams (UD queue pairs), by its IP address. rdma_join_multicast(3).
///
///     cm::MulticastGroup group(channel, "239.1.2.3", "192.0.2.1", 5s);
///     // event `resolved`:
///     QueuePairOptions options{.send_cq = cq, .recv_cq = cq,
///                              .type = QueuePairType::unreliable_datagram};
///     options.port = group.port();
///     options.qkey = cm::multicast_qkey;
///     QueuePair qp = QueuePair::prepare(pd, options).activate();  // pd of group.context()
///     group.join(qp);
///     // event `multicast_joined`:
///     qp.post_send_to(region.sge(), group.destination());
///
/// Destroying the group leaves it. A queue pair may join several groups. Moves only; holds its
/// event channel.
class RDMABUF_EXPORT MulticastGroup {
  public:
    /// Begins to find the device. `resolved` or `failed` follows.
    /// @param group       IPv4 or IPv6 address of the group
    /// @param local_host  address of the local interface to use; empty: the kernel chooses it by
    ///                    its routes
    /// @param timeout     limit of this step
    /// @param user_data   ChannelEvent::user_data of the events of this group
    /// @throws Error EINVAL for a host that has no address; ENODEV without an RDMA device;
    ///         EADDRNOTAVAIL for a local host that is not this machine
    MulticastGroup(const EventChannel& channel, const std::string& group,
                   const std::string& local_host, std::chrono::milliseconds timeout,
                   void* user_data = nullptr);
    MulticastGroup(MulticastGroup&&) noexcept;
    MulticastGroup& operator=(MulticastGroup&&) noexcept;
    MulticastGroup(const MulticastGroup&) = delete;
    MulticastGroup& operator=(const MulticastGroup&) = delete;
    ~MulticastGroup();

    /// The functions below throw Error EBADF after a move from this object, and Error ENOTCONN
    /// before the event after which they apply.

    /// The device that the group is reached by, after `resolved`. librdmacm closes it when the
    /// program ends.
    [[nodiscard]] Context context() const;
    /// The port of the device, after `resolved`.
    [[nodiscard]] std::uint8_t port() const;

    /// Begins to join, after `resolved` and once. `multicast_joined` or `failed` follows.
    /// @param queue_pair  made on context() and port() with multicast_qkey. It is not held: leave()
    ///                    or destroy the group before the queue pair, or ibv_destroy_qp(3) fails
    ///                    with EBUSY.
    /// @throws Error EINVAL for a queue pair of another context or type; the errno of
    ///         rdma_join_multicast(3)
    void join(const QueuePair& queue_pair, MulticastRole role = MulticastRole::send_and_receive);
    /// The destination for datagrams to the group, after `multicast_joined`. The address handle is
    /// that of the group, valid until leave().
    [[nodiscard]] Destination destination() const;
    /// Leaves the group: detaches the queue pair. Does nothing when it has not joined.
    /// @throws Error the errno of ibv_detach_mcast(3) or rdma_leave_multicast(3). The group has not
    ///         been left then, and the call can be repeated.
    void leave();

    /// nullptr after a move from this object.
    [[nodiscard]] rdma_cm_id* native() const noexcept;

  private:
    std::unique_ptr<detail::MulticastState> group_;
};

} // namespace rdmabuf::cm
