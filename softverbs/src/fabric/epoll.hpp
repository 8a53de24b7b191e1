// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/epoll.h>

#include <cstdint>

namespace softverbs::fabric {

/// Adds the file descriptor @p fd to an epoll instance. Its events contain @p fd in
/// epoll_event::data.fd. Returns false and sets errno on failure.
[[nodiscard]] inline bool watch(int epoll, int fd, std::uint32_t events = EPOLLIN) noexcept {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/// Removes the file descriptor @p fd from an epoll instance. Must be called before close(2): if a
/// child process has inherited the file descriptor, close(2) does not remove it from the epoll
/// instance.
inline void stop_watching(int epoll, int fd) noexcept {
    ::epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr);
}

} // namespace softverbs::fabric
