// SPDX-License-Identifier: BSD-3-Clause
#include "objects/process.hpp"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <string_view>

#include "control/settings.hpp"

namespace softverbs {

namespace {

// Handlers of pthread_atfork(). The child starts with Process::lock unlocked, and leaves the
// connections to the parent.
void before_fork() {
    process().lock.lock();
}
void after_fork_in_parent() {
    process().lock.unlock();
}
void after_fork_in_child() {
    process().engine.abandon();
    process().lock.unlock();
}

void at_exit() {
    process().engine.shutdown();
}

Process* make_process() {
    // Never freed: other threads may poll while the process exits.
    auto* const made = new Process;
    const Settings settings = settings_from_environment();
    made->network = settings.network;
    made->devices = describe_devices(settings);
    if (made->faults.set(settings.faults) != 0) {
        refuse_setting("SOFTVERBS_FAULTS", settings.faults,
                       "a list such as reg_mr#3=ENOMEM,packet#5=drop,dm=exhausted");
    }
    return made;
}

} // namespace

Process& process() {
    static Process* const the_one = [] {
        Process* const made = make_process();
        ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
        std::atexit(at_exit);
        return made;
    }();
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
