// SPDX-License-Identifier: BSD-3-Clause
#include "thread_clock.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace {

/// The seconds by which the clocks of this thread are ahead.
thread_local std::time_t ahead = 0;

} // namespace

// Libraries call this function in place of the one of libc. It has a name of its own, because
// clangd compares the names of parameters with libc's declaration.
extern "C" int replaced_clock_gettime(clockid_t clock, timespec* time) noexcept
    __asm__("clock_gettime");
extern "C" int replaced_clock_gettime(clockid_t clock, timespec* time) noexcept {
    const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
    time->tv_sec += ahead;
    return result;
}

namespace rdmabuf::testing {

ThreadClock::~ThreadClock() {
    ahead = 0;
}

void ThreadClock::advance(std::chrono::seconds time) {
    ahead += time.count();
}

} // namespace rdmabuf::testing
