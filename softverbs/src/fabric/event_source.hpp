// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <cstdint>

namespace softverbs::fabric {

/// The kinds of file descriptors in the epoll instance of this process: the listening Unix socket,
/// the eventfd that wakes this process (doorbell), the socket of a process that has not sent its
/// first message yet (client), the socket of a connection within this host (link), and the epoll
/// instance of the TCP sockets (network). That epoll instance contains only descriptors of the kind
/// network.
enum class EventSource : std::uint32_t { listener, doorbell, client, link, network };

/// Combines the kind and the number of a file descriptor into the data of an epoll event.
[[nodiscard]] constexpr std::uint64_t event_tag(EventSource source, int fd) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(source)} << 32U |
           static_cast<std::uint32_t>(fd);
}
[[nodiscard]] constexpr EventSource source_of(std::uint64_t tag) noexcept {
    return static_cast<EventSource>(tag >> 32U);
}
[[nodiscard]] constexpr int descriptor_of(std::uint64_t tag) noexcept {
    return static_cast<int>(tag & 0xffffffffU);
}

/// Adds the file descriptor @p fd of the kind @p source to an epoll instance. If the epoll instance
/// already contains @p fd, changes its kind and events. Returns false and sets errno on failure.
inline bool watch(int epoll, int fd, EventSource source, std::uint32_t events = EPOLLIN) noexcept {
    epoll_event event{};
    event.events = events;
    event.data.u64 = event_tag(source, fd);
    return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ||
           (errno == EEXIST && ::epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0);
}

/// Removes the file descriptor @p fd from an epoll instance. Must be called before close(2): if a
/// child process has inherited the file descriptor, close(2) does not remove it from the epoll
/// instance.
inline void stop_watching(int epoll, int fd) noexcept {
    ::epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr);
}

} // namespace softverbs::fabric
