// SPDX-License-Identifier: BSD-3-Clause
#include "objects/process.hpp"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <mutex>
#include <string_view>

#include "control/control_socket.hpp"
#include "control/settings.hpp"
#include "fabric/clock.hpp"
#include "objects/acknowledgements.hpp"
#include "objects/exit_handler.hpp"

namespace softverbs {

namespace {

// Handlers for pthread_atfork(3). Process::lock is held during fork(2), so that the state in the
// child process is consistent. The child process closes its copies of the connections to other
// processes, because these connections belong to the parent process.
void before_fork() {
    process().lock.lock();
    control::before_fork();
}
void after_fork_in_parent() {
    control::after_fork_in_parent();
    process().lock.unlock();
}
void after_fork_in_child() {
    // Another thread of the parent process may have locked this mutex in
    // wait_for_acknowledgements(). That thread does not exist in the child process, so it never
    // unlocks the mutex.
    ::pthread_mutex_init(&acknowledgement_mutex, nullptr);
    control::abandon();
    process().engine.abandon();
    process().lock.unlock();
}

void at_exit() {
    control::stop();
    // exit(3) may have been called in a signal handler that interrupted a verb. The verb holds
    // Process::lock and never continues. Therefore wait for the lock for at most 200 ms. Without
    // the lock, the process ends without a shutdown: its peers detect the end by the closed
    // sockets, and the next softverbs process removes its files.
    std::unique_lock lock(process().lock, std::defer_lock);
    if (fabric::retry_every_ms(200, [&] { return lock.try_lock(); })) {
        process().engine.shutdown(lock);
    }
}

Process* new_process() {
    // This object is never freed, because other threads may call verbs while the process exits.
    auto* const made = new Process;
    const Settings settings = settings_from_environment();
    if (settings.manual_clock) {
        fabric::stop_clock();
    }
    made->network = settings.network;
    made->devices = describe_devices(settings);
    made->real_devices_hidden = settings.only;
    made->registration_delay_ns = settings.registration_delay_ms * std::uint64_t{1'000'000};
    if (made->faults.set(settings.faults, made->devices) != 0) {
        refuse_setting(
            "SOFTVERBS_FAULTS", settings.faults,
            "a list such as reg_mr#3=ENOMEM,packet#5=drop,port=flap:100ms*5,dm=exhausted, with "
            "devices and ports that exist");
    }
    if (made->disorder.set(settings.disorder) != 0) {
        refuse_setting("SOFTVERBS_DISORDER", settings.disorder,
                       "a list of acks, qps, writes or all, optionally with a seed: acks,qps:7");
    }
    return made;
}

} // namespace

Process& make_process() {
    static Process* const the_one = [] {
        Process* const made = new_process();
        ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
        register_exit_handler<at_exit>();
        return made;
    }();
    made_process.store(the_one, std::memory_order_release);
    return *the_one;
}

std::nullptr_t fail(int error) noexcept {
    errno = error;
    return nullptr;
}

int busy() noexcept {
    ++process().violations;
    errno = EBUSY;
    return EBUSY;
}

} // namespace softverbs
