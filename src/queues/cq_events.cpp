// SPDX-License-Identifier: BSD-3-Clause
#include "queues/cq_events.hpp"

#include <algorithm>
#include <cerrno>

#include <rdmabuf/detail/check.hpp>

#include "base/file_descriptor.hpp"

namespace rdmabuf::detail {
namespace {

/// The number of events that one call of ibv_ack_cq_events(3) acknowledges with
/// Acknowledgement::batched.
constexpr std::uint32_t batch = 64;

} // namespace

ibv_cq* take_event(ibv_comp_channel* channel) {
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    errno = 0;
    if (ibv_get_cq_event(channel, &cq, &cq_context) == 0) {
        return cq;
    }
    check_zero(errno == EAGAIN || errno == EINTR ? 0 : -1, "ibv_get_cq_event");
    return nullptr;
}

ibv_cq* wait_event(ibv_comp_channel* channel, std::chrono::milliseconds timeout) {
    const Deadline deadline(timeout);
    while (wait_readable(channel->fd, deadline.left())) {
        // There may be no event: another thread may have read the event since the descriptor became
        // readable.
        if (ibv_cq* const cq = take_event(channel); cq != nullptr) {
            return cq;
        }
    }
    return nullptr;
}

void CqEvents::acknowledge(ibv_cq* cq) noexcept {
    std::uint32_t count = unacknowledged_.load(std::memory_order_relaxed);
    std::uint32_t next = 0;
    do {
        if (count == immediate) {
            ibv_ack_cq_events(cq, 1);
            return;
        }
        next = count + 1 == batch ? 0 : count + 1;
    } while (!unacknowledged_.compare_exchange_weak(count, next, std::memory_order_relaxed));
    if (next == 0) {
        ibv_ack_cq_events(cq, batch);
    }
}

void CqEvents::acknowledge_all(ibv_cq* cq) noexcept {
    if (const auto count = unacknowledged_.fetch_and(immediate) & ~immediate; count != 0) {
        ibv_ack_cq_events(cq, count);
    }
}

void CqEvents::stop_batching(ibv_cq* cq) noexcept {
    if (const auto count = unacknowledged_.exchange(immediate) & ~immediate; count != 0) {
        ibv_ack_cq_events(cq, count);
    }
}

CqEvents::Turn::Turn(CqEvents& events, std::chrono::milliseconds timeout) : events_(events) {
    std::unique_lock lock(events_.mutex_);
    if (events_.turn_taken_) {
        // The wait is limited to one hour, because the current time plus a very long timeout would
        // overflow.
        constexpr std::chrono::milliseconds longest = std::chrono::hours(1);
        events_.turn_given_up_.wait_for(lock,
                                        timeout.count() < 0 ? longest : std::min(timeout, longest));
        return;
    }
    events_.turn_taken_ = true;
    owned_ = true;
}

CqEvents::Turn::~Turn() {
    if (owned_) {
        const std::scoped_lock lock(events_.mutex_);
        events_.turn_taken_ = false;
        events_.turn_given_up_.notify_all();
    }
}

} // namespace rdmabuf::detail
