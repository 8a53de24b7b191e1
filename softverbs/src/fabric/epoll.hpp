// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/epoll.h>

#include <cstdint>

namespace softverbs::fabric {

/// Adds a descriptor to an epoll. The event data is the number of the descriptor. Returns false and
/// sets errno on failure.
[[nodiscard]] inline bool watch(int epoll, int fd, std::uint32_t events = EPOLLIN) noexcept {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/// Removes a descriptor from an epoll. Must be called before close(2), because close(2) does not
/// remove the descriptor from the epoll if a child process has inherited the descriptor.
inline void stop_watching(int epoll, int fd) noexcept {
    ::epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr);
}

} // namespace softverbs::fabric
