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

/// ibv_destroy_cq(), ibv_destroy_qp() and ibv_destroy_srq() block until the program has
/// acknowledged every event of the object that it has received. Process::lock protects the
/// counters. The destroying thread waits on the condition variable that verbs.h declares in the
/// object, with acknowledgement_mutex: Process::lock is no pthread_mutex_t. It is locked with
/// Process::lock held.
inline pthread_mutex_t acknowledgement_mutex = PTHREAD_MUTEX_INITIALIZER;

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

/// Counts a violation if more events are acknowledged than were received.
template <class Object>
void event_acknowledged(Object& object, std::uint32_t count = 1) {
    if (count > object.unacknowledged) {
        ++process().violations;
        count = object.unacknowledged;
    }
    object.unacknowledged -= count;
    process().unacknowledged_events -= count;
    pthread_mutex_lock(&acknowledgement_mutex);
    pthread_cond_broadcast(&condition_of(object));
    pthread_mutex_unlock(&acknowledgement_mutex);
}

/// @param lock  holds Process::lock; it is released while this function waits
template <class Object>
void wait_for_acknowledgements(Object& object, std::unique_lock<Lock>& lock) {
    while (object.unacknowledged != 0) {
        // No acknowledgement can come between unlock() and the wait, because it also needs
        // acknowledgement_mutex.
        pthread_mutex_lock(&acknowledgement_mutex);
        lock.unlock();
        pthread_cond_wait(&condition_of(object), &acknowledgement_mutex);
        pthread_mutex_unlock(&acknowledgement_mutex);
        lock.lock();
    }
}

/// Removes the queued asynchronous events of an object that is being destroyed. Events that the
/// program has already received are not affected.
/// @param native  the ibv_cq, ibv_qp or ibv_srq
void forget_events(Context& context, const void* native);

} // namespace softverbs
