// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

namespace rdmabuf::testing {

/// Moves the clocks that a thread reads by clock_gettime(2) ahead, also in libraries that the
/// program loads. The clocks of other threads are not changed. The destructor moves them back.
class ThreadClock {
  public:
    ThreadClock() = default;
    ~ThreadClock();
    ThreadClock(const ThreadClock&) = delete;
    ThreadClock& operator=(const ThreadClock&) = delete;

    static void advance(std::chrono::seconds time);
};

} // namespace rdmabuf::testing
