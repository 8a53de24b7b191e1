// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace softverbs::fabric {

/// Starts a thread that executes @p function. The new thread blocks all signals, so that only the
/// threads of the program handle signals.
/// @param name  name of the thread, at most 15 characters
/// @throws std::system_error  if the thread cannot be created
template <class Function>
[[nodiscard]] std::thread start_background_thread(const char* name, Function&& function) {
    sigset_t all{};
    sigset_t before{};
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread;
    try {
        thread = std::thread(std::forward<Function>(function));
    } catch (...) {
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::pthread_setname_np(thread.native_handle(), name);
    return thread;
}

} // namespace softverbs::fabric
