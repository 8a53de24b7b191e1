// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <cstdint>

namespace softverbs::fabric {

/// The kinds of descriptors in the epoll of this process.
enum class EventSource : std::uint32_t { listener, doorbell, client, link, network };

/// Encodes the kind and the number of a descriptor as the data of an epoll event.
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

/// Adds a descriptor of the kind @p source to an epoll. If the epoll already contains the
/// descriptor, changes its kind. Returns false and sets errno on failure.
[[nodiscard]] inline bool watch(int epoll, int fd, EventSource source) noexcept {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = event_tag(source, fd);
    return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ||
           (errno == EEXIST && ::epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0);
}

} // namespace softverbs::fabric
