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

/// The Q_Key that librdmacm uses for multicast groups. QueuePairOptions::qkey of a queue pair that
/// joins a group must have this value.
inline constexpr std::uint32_t multicast_qkey = RDMA_UDP_QKEY;

enum class MulticastRole : std::uint8_t {
    /// The queue pair can send to the group, and receives the datagrams of the group, including
    /// those that it has sent itself.
    send_and_receive,
    /// The queue pair can send to the group but does not receive the datagrams of the group.
    send,
};

/// The membership of a UD queue pair in a multicast group, which an IP address identifies. See
/// rdma_join_multicast(3).
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
/// The destructor leaves the group. A queue pair may join several groups, each with its own
/// MulticastGroup. Objects can be moved but not copied. A MulticastGroup keeps its event channel
/// alive.
class RDMABUF_EXPORT MulticastGroup {
  public:
    /// Begins to resolve the device through which the group is reached. The result is the event
    /// `resolved` or `failed`.
    /// @param group       the IPv4 or IPv6 address of the group
    /// @param local_host  the address of the local interface; if it is empty, the kernel selects an
    ///                    interface by its routing table
    /// @param timeout     the limit for resolving the device
    /// @param user_data   the pointer that the events of this group have in ChannelEvent::user_data
    /// @throws Error
    ///   - EBADF: @p channel was closed, released or moved from
    ///   - EINVAL: @p group or @p local_host has no address, or their addresses have different
    ///     families
    ///   - ENODEV: no RDMA device
    ///   - EADDRNOTAVAIL: @p local_host is not an address of this machine
    MulticastGroup(const EventChannel& channel, const std::string& group,
                   const std::string& local_host, std::chrono::milliseconds timeout,
                   void* user_data = nullptr);
    MulticastGroup(MulticastGroup&&) noexcept;
    MulticastGroup& operator=(MulticastGroup&&) noexcept;
    MulticastGroup(const MulticastGroup&) = delete;
    MulticastGroup& operator=(const MulticastGroup&) = delete;
    ~MulticastGroup();

    /// The functions below, except native(), throw Error EBADF after a move from this object. If a
    /// function requires an event that was not reported yet, it throws Error ENOTCONN.

    /// Returns the device through which the group is reached. Requires the event `resolved`.
    /// librdmacm owns the ibv_context: the program must not close it.
    [[nodiscard]] Context context() const;
    /// Returns the number of the port of context() through which the group is reached. Requires the
    /// event `resolved`.
    [[nodiscard]] std::uint8_t port() const;

    /// Begins to join the group. The result is the event `multicast_joined` or `failed`. Requires
    /// the event `resolved`. After a call that succeeded, call leave() before the next call.
    /// @param queue_pair  a UD queue pair created on context() and port() with multicast_qkey. The
    ///                    group does not keep the queue pair alive. Call leave() or destroy the
    ///                    group before you destroy the queue pair: with
    ///                    MulticastRole::send_and_receive, destroying a queue pair that is still a
    ///                    member fails with EBUSY.
    /// @throws Error EINVAL if the queue pair is of another context or not UD, or if join() was
    ///         called before without leave(); other errno values are those of
    ///         rdma_join_multicast(3)
    void join(const QueuePair& queue_pair, MulticastRole role = MulticastRole::send_and_receive);
    /// Returns the destination for send requests to the group. Requires the event
    /// `multicast_joined`. The address handle in the result belongs to this object and is valid
    /// until leave() or the destruction of this object.
    [[nodiscard]] Destination destination() const;
    /// Detaches the queue pair and leaves the group. Does nothing if no join() has succeeded since
    /// the last leave().
    /// @throws Error with the errno of ibv_detach_mcast(3) or rdma_leave_multicast(3). The
    ///         membership then still exists: call leave() again.
    void leave();

    /// Returns the rdma_cm_id, which this object owns, or nullptr after a move from this object.
    [[nodiscard]] rdma_cm_id* native() const noexcept;

  private:
    std::unique_ptr<detail::MulticastState> group_;
};

} // namespace rdmabuf::cm
