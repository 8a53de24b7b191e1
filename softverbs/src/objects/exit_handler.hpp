// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace softverbs {

/// Registers @p function, which is called once when the process exits. If two threads call exit(3),
/// glibc before 2.41 distributes the handlers among them. A thread that finds no more handlers ends
/// the process, although the other thread may still execute one. Therefore the handler is
/// registered twice: the second thread waits in it until @p function has returned, for at most 2
/// seconds.
template <void (*function)()>
void register_exit_handler() {
    constexpr auto handler = [] {
        constexpr std::chrono::seconds longest_wait(2);
        static auto* const mutex = new std::timed_mutex;
        static bool done = false;
        const std::unique_lock lock(*mutex, longest_wait);
        if (lock.owns_lock() && !std::exchange(done, true)) {
            function();
        }
    };
    std::atexit(handler);
    std::atexit(handler);
}

} // namespace softverbs
