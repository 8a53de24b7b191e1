// SPDX-License-Identifier: BSD-3-Clause
// The functions of softverbs.h with which a test stops the clock, and then does the work of the
// background threads itself.
#include <errno.h>

#include <algorithm>
#include <mutex>

#include "abi/entry.hpp"
#include "cm/manager.hpp"
#include "control/control_socket.hpp"
#include "fabric/clock.hpp"

namespace softverbs {

namespace {

/// Does the work of all background threads that is due now. Returns whether there was such work.
bool step() {
    const fabric::NoCancellation not_cancelled;
    bool active = false;
    {
        const Guard guard;
        active = process().engine.step();
    }
    if (cm::Manager* const manager = cm::existing_manager(); manager != nullptr) {
        active = manager->step() || active;
    }
    return control::step() || active;
}

/// Returns the time at which the next timer expires, or 0 if no timer is set.
std::uint64_t next_deadline() {
    std::uint64_t earliest = control::next_change();
    {
        const Guard guard;
        earliest = fabric::earlier(earliest, process().engine.next_deadline());
    }
    if (cm::Manager* const manager = cm::existing_manager(); manager != nullptr) {
        earliest = fabric::earlier(earliest, manager->next_deadline());
    }
    return earliest;
}

} // namespace

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY int softverbs_take_clock() {
    // While this thread holds these locks, no background thread starts new work.
    std::unique_lock<std::mutex> cm_guard;
    if (cm::Manager* const manager = cm::existing_manager(); manager != nullptr) {
        cm_guard = std::unique_lock(manager->lock);
    }
    const Guard guard;
    const std::unique_lock<std::mutex> control_guard = control::block();
    return fabric::stop_clock() ? 0 : EBUSY;
}

SOFTVERBS_ENTRY int softverbs_release_clock() {
    {
        const Guard guard;
        if (!fabric::run_clock()) {
            return EPERM;
        }
        process().engine.clock_runs();
    }
    if (cm::Manager* const manager = cm::existing_manager(); manager != nullptr) {
        manager->clock_runs();
    }
    control::clock_runs();
    return 0;
}

SOFTVERBS_ENTRY std::uint64_t softverbs_now() {
    static_cast<void>(process());
    return fabric::now_ns();
}

SOFTVERBS_ENTRY int softverbs_step() {
    static_cast<void>(process()); // reads SOFTVERBS_CLOCK
    if (!fabric::clock_is_stopped()) {
        errno = EPERM;
        return -1;
    }
    return step() ? 1 : 0;
}

SOFTVERBS_ENTRY std::uint64_t softverbs_next_timer() {
    const std::uint64_t deadline = next_deadline();
    const std::uint64_t now = fabric::now_ns();
    return deadline == 0 ? UINT64_MAX : std::max(deadline, now) - now;
}

SOFTVERBS_ENTRY int softverbs_advance(std::uint64_t ns) {
    static_cast<void>(process()); // reads SOFTVERBS_CLOCK
    if (!fabric::clock_is_stopped()) {
        return EPERM;
    }
    const std::uint64_t now = fabric::now_ns();
    if (ns > UINT64_MAX - now) {
        return EINVAL;
    }
    const std::uint64_t end = now + ns;
    while (fabric::clock_is_stopped()) {
        while (step()) {
        }
        const std::uint64_t next = next_deadline();
        if (next == 0 || next > end) {
            break;
        }
        fabric::move_clock(next);
    }
    fabric::move_clock(end);
    return 0;
}
