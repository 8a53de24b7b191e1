// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

#include <cstdint>
#include <mutex>

#include "objects/completion_queue.hpp"
#include "objects/device.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// A completion queue, queue pair or shared receive queue is not freed before the program has
/// acknowledged all events of it that it took. They are counted under the lock; whoever waits for
/// them waits on the condition that verbs.h has in the object.

[[nodiscard]] inline pthread_cond_t& condition_of(Cq& cq) noexcept {
    return cq.cond;
}
[[nodiscard]] inline pthread_cond_t& condition_of(Qp& qp) noexcept {
    return qp.qp_base.cond;
}
[[nodiscard]] inline pthread_cond_t& condition_of(Srq& srq) noexcept {
    return srq.cond;
}

template <class Object>
void event_taken(Object& object) {
    ++object.unacknowledged;
    ++process().unacknowledged_events;
}

/// More than were taken is counted as a violation.
template <class Object>
void event_acknowledged(Object& object, std::uint32_t count = 1) {
    if (count > object.unacknowledged) {
        ++process().violations;
        count = object.unacknowledged;
    }
    object.unacknowledged -= count;
    process().unacknowledged_events -= count;
    pthread_cond_broadcast(&condition_of(object));
}

/// @param lock  of Process::lock; not held while it waits
template <class Object>
void wait_for_acknowledgements(Object& object, std::unique_lock<std::mutex>& lock) {
    while (object.unacknowledged != 0) {
        pthread_cond_wait(&condition_of(object), lock.mutex()->native_handle());
    }
}

/// Removes asynchronous events of an object that goes, which nobody has taken.
/// @param native  the ibv_cq, ibv_qp or ibv_srq
void forget_events(Context& context, const void* native);

} // namespace softverbs
