// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

#include <cstdint>
#include <mutex>
#include <type_traits>

#include "objects/completion_queue.hpp"
#include "objects/device.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// The mutex of the condition variables (such as ibv_cq::cond) on which ibv_destroy_cq(),
/// ibv_destroy_qp() and ibv_destroy_srq() wait until the program has acknowledged all received
/// events of the object. The numbers of unacknowledged events are protected by Process::lock. A
/// thread that takes both locks must take Process::lock first.
inline pthread_mutex_t acknowledgement_mutex = PTHREAD_MUTEX_INITIALIZER;

template <class Object>
[[nodiscard]] pthread_cond_t& condition_of(Object& object) noexcept {
    if constexpr (std::is_same_v<Object, Qp>) {
        return object.qp_base.cond;
    } else {
        return object.cond;
    }
}

template <class Object>
void event_taken(Object& object) {
    ++object.unacknowledged;
    ++process().unacknowledged_events;
}

/// Subtracts @p count from the number of unacknowledged events of the object, and wakes
/// wait_for_acknowledgements(). Called when the program acknowledges events. If fewer received
/// events are unacknowledged, counts a violation (an error of the program, see
/// softverbs_violations()).
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

/// Waits until the program has acknowledged all received events of the CQ, QP or SRQ.
/// @param lock  holds Process::lock; released during the wait
template <class Object>
void wait_for_acknowledgements(Object& object, std::unique_lock<Lock>& lock) {
    while (object.unacknowledged != 0) {
        // Lock this mutex before Process::lock is released. Otherwise the thread could miss an
        // acknowledgement between its check for unacknowledged events and its wait.
        pthread_mutex_lock(&acknowledgement_mutex);
        lock.unlock();
        pthread_cond_wait(&condition_of(object), &acknowledgement_mutex);
        pthread_mutex_unlock(&acknowledgement_mutex);
        lock.lock();
    }
}

/// Calls @p function with the CQ, QP or SRQ to which the asynchronous event belongs. Returns false,
/// without a call, if the event belongs to a port or a device.
template <class Function>
bool with_object(const ibv_async_event& event, const Function& function) {
    switch (event.event_type) {
        case IBV_EVENT_CQ_ERR:
            function(event.element.cq);
            return true;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            function(event.element.qp);
            return true;
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            function(event.element.srq);
            return true;
        default:
            return false;
    }
}

/// Removes the queued asynchronous events of an object, so that the program does not receive them.
/// Called when the object is destroyed. Events that the program has already received still need an
/// acknowledgement.
/// @param native  the ibv_cq, ibv_qp or ibv_srq
void forget_events(Context& context, const void* native);

} // namespace softverbs
