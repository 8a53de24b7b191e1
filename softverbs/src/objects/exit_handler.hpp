// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace softverbs {

/// Registers @p function to run once at process exit. If two threads call exit(3), glibc
/// before 2.41 runs each handler in one of them, and the thread that finds no more handlers ends
/// the process. Therefore the handler is registered twice: the second thread runs it too, and waits
/// until
/// @p function has returned in the first one.
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
