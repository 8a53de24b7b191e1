// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdlib>

#include "fabric/clock.hpp"

namespace softverbs {

/// Registers @p function, which is called once when the process exits. If two threads call exit(3),
/// glibc before 2.41 distributes the exit handlers among the threads. A thread that finds no
/// further handler ends the process, although the other thread may still execute a handler.
/// Therefore the handler is registered twice, once for each thread. The first call of the handler
/// calls @p function. The second call only waits until @p function has returned, for at most 2
/// seconds.
template <void (*function)()>
void register_exit_handler() {
    constexpr auto handler = [] {
        static std::atomic<bool> started{false};
        static std::atomic<bool> done{false};
        if (!started.exchange(true)) {
            function();
            done = true;
        }
        fabric::retry_every_ms(2000, [] { return done.load(); });
    };
    std::atexit(handler);
    std::atexit(handler);
}

} // namespace softverbs
