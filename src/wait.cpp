// SPDX-License-Identifier: BSD-3-Clause
#include "wait.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include <rdmabuf/detail/check.hpp>

namespace rdmabuf::detail {

bool wait_readable(int fd, std::chrono::milliseconds timeout) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    pollfd request{.fd = fd, .events = POLLIN, .revents = 0};
    while (true) {
        int left = -1;
        if (timeout.count() >= 0) {
            // Rounded up: a wait that ends early would spin through the last millisecond.
            const auto elapsed =
                std::chrono::floor<std::chrono::milliseconds>(Clock::now() - start);
            left = static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(
                (timeout - elapsed).count(), 0, std::numeric_limits<int>::max()));
        }
        const int ready = ::poll(&request, 1, left);
        if (ready > 0) {
            return true;
        }
        if (ready == 0 &&
            std::chrono::floor<std::chrono::milliseconds>(Clock::now() - start) >= timeout) {
            return false;
        }
        check_zero(ready == 0 || errno == EINTR ? 0 : errno, "poll");
    }
}

} // namespace rdmabuf::detail
