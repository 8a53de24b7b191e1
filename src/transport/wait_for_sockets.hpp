// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <span>

#include <rdmabuf/transport/detail/clock.hpp>

#include "transport/unlocked.hpp"

namespace rdmabuf::transport::detail {

/// Waits until poll(2) reports an event of a socket, a signal arrives, or @p timeout or @p deadline
/// has passed.
/// @param timeout   negative for no time limit
/// @param deadline  in nanoseconds of now_ns(); empty for no deadline
/// @param mutex     EndpointOptions::mutex, which is unlocked during the wait
inline void wait_for_sockets(std::span<pollfd> sockets, std::chrono::milliseconds timeout,
                             std::optional<std::int64_t> deadline, std::mutex* mutex) noexcept {
    std::int64_t limit = timeout.count();
    if (deadline) {
        // The remaining time is rounded up to milliseconds, so that the deadline has passed after
        // the wait.
        const std::int64_t left = std::max<std::int64_t>(*deadline - now_ns(), 0) / 1'000'000 + 1;
        limit = limit < 0 ? left : std::min(limit, left);
    }
    limit = std::min<std::int64_t>(limit, std::numeric_limits<int>::max());
    const Unlocked unlocked(mutex);
    static_cast<void>(::poll(sockets.data(), sockets.size(), static_cast<int>(limit)));
}

} // namespace rdmabuf::transport::detail
