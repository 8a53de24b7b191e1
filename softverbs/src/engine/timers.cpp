// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/implementation.hpp"
#include "engine/requester.hpp"
#include "objects/process.hpp"

namespace softverbs {

namespace {

/// Maximum time in nanoseconds for which a UC requester waits until the responder has copied a long
/// message from memory of the requester. After this time, the message counts as lost.
constexpr std::uint64_t unreliable_wait_ns = 500'000'000;
/// If the timeout attribute of a queue pair is 0, the requester waits for a response without limit.
/// At this interval in nanoseconds, it checks whether the process of the responder still exists.
constexpr std::uint64_t gone_wait_ns = 1'000'000'000;

/// Time in nanoseconds for which a datagram waits for room in the ring to another process that
/// consumes no packets.
constexpr std::uint64_t datagram_wait_ns = 50'000'000;

/// Removes the elements for which @p is_due is true from the list and returns them. Removes none if
/// it throws std::bad_alloc.
template <class Element, class Predicate>
std::vector<Element> take_if(std::vector<Element>& list, const Predicate& is_due) {
    std::vector<Element> due;
    due.reserve(list.size());
    std::erase_if(list, [&](Element& element) {
        if (!is_due(element)) {
            return false;
        }
        due.push_back(std::move(element));
        return true;
    });
    return due;
}

std::uint64_t timeout_of(const Qp& qp) noexcept {
    if (!qp.is_reliable()) {
        return unreliable_wait_ns;
    }
    return qp.attributes.timeout == 0 ? gone_wait_ns : std::uint64_t{4096} << qp.attributes.timeout;
}

} // namespace

void Engine::Implementation::set_deadline(Qp& qp, std::uint64_t deadline) {
    qp.requester.deadline = deadline;
    if (!qp.requester.timed) {
        timed.push_back(&qp);
        qp.requester.timed = true;
    }
    wake_agent_before(deadline);
}

void Engine::Implementation::set_timer_before(Qp& qp, std::uint64_t deadline) {
    if (!qp.requester.timed || deadline < qp.requester.deadline) {
        set_deadline(qp, deadline);
    }
}

void Engine::Implementation::start_timer(Qp& qp) {
    qp.requester.progressed = false;
    set_timer(qp, timeout_of(qp));
}

bool Engine::Implementation::worth_waiting(Qp& qp) {
    Requester& requester = qp.requester;
    const std::uint64_t taken = requester.connection->taken();
    if (requester.closed_lane == requester.connection && requester.closed_since == taken) {
        return false;
    }
    requester.closed_lane = nullptr;
    requester.closed_since = taken;
    set_timer(qp, datagram_wait_ns);
    return true;
}

std::uint64_t Engine::Implementation::next_deadline() const noexcept {
    std::uint64_t earliest = 0;
    const auto consider = [&earliest](std::uint64_t deadline) {
        earliest = fabric::earlier(earliest, deadline);
    };
    for (const Qp* const qp : timed) { // their deadlines are never 0
        consider(qp->requester.deadline);
    }
    for (const Delayed& late : delayed) {
        consider(late.due);
    }
    for (const ModeratedEvent& event : moderated) {
        consider(event.due);
    }
    if (!held_writes.empty()) {
        consider(held_writes.front().due);
    }
    return fabric::earlier(earliest, node == nullptr ? 0 : node->next_deadline());
}

void Engine::Implementation::run_timers(std::uint64_t now) {
    deliver_delayed(now);
    raise_moderated(now);
    // When the oldest RDMA write that SOFTVERBS_DISORDER (a test setting) delays is due, execute
    // all delayed writes, so that they stay in order.
    if (!held_writes.empty() && held_writes.front().due <= now) {
        release_writes();
    }
    // expired() below may add queue pairs to the list "timed". Therefore first move the queue pairs
    // whose timer has expired from this list to "due".
    const std::vector<Qp*> due =
        take_if(timed, [now](const Qp* qp) { return qp->requester.deadline <= now; });
    for (Qp* const qp : due) {
        qp->requester.timed = false;
    }
    for (Qp* const qp : due) {
        expired(*qp);
    }
    drain();
}

void Engine::Implementation::expired(Qp& qp) {
    Requester& requester = qp.requester;
    if (std::exchange(requester.waiting_for_receiver, false)) {
        --waiting_for_receivers;
        run(qp);
        return;
    }
    if (qp.srd != nullptr) {
        expired_srd(qp);
        return;
    }
    if (qp.state() != IBV_QPS_RTS && qp.state() != IBV_QPS_SQD) {
        return;
    }
    if (qp.type() == IBV_QPT_UD) {
        if (requester.stalled && requester.connection->taken() == requester.closed_since) {
            requester.closed_lane = requester.connection; // until the process reads packets again
        }
        if (std::exchange(requester.stalled, false)) {
            std::erase(stalled, &qp);
            run(qp);
        }
        return;
    }
    // Do nothing if no response is missing: the send queue is empty, or its oldest request waits to
    // be sent, for another reason than a full connection.
    if (qp.sends.empty() ||
        (qp.sends.front().state == SendRequest::State::waiting && !requester.stalled)) {
        return; // the next request that is sent starts the timer
    }
    // The responder's process may be busy and may not have read the request, so that it cannot have
    // responded. As long as Connection::delivers() is true, this is not a timeout.
    const bool unread =
        requester.connection != nullptr &&
        (requester.stalled || requester.connection->taken() < qp.sends.front().record) &&
        requester.connection->delivers();
    const bool to_this_process =
        !requester.route.remote && slot_of(qp.attributes.dest_qp_num) == slot;
    if (unread) {
        requester.retries_left = qp.attributes.retry_cnt; // the responder's host is reachable
    }
    const bool for_ever = qp.is_reliable() && qp.attributes.timeout == 0 &&
                          (requester.connection != nullptr || to_this_process);
    if (requester.progressed || unread || for_ever || is_copying(qp)) {
        start_timer(qp);
        return;
    }
    if (!qp.is_reliable()) {
        // As UC does for lost messages, complete all requests in flight with IBV_WC_SUCCESS. UC has
        // no ACKs, but softverbs waits for one after a long message, because the responder copies
        // the data from memory of the requester. This ACK has not arrived in time.
        withdraw_requests(qp);
        for (std::uint64_t i = qp.sends.first(); i < requester.next; ++i) {
            finish(qp, qp.sends[i]);
        }
        retire(qp);
        run(qp);
        return;
    }
    if (!requester.stalled && requester.ack_requested_until <= qp.sends.first()) {
        // None of the requests in flight has requested an ACK. Retransmit them with the ACK request
        // flag.
        resend(qp);
        run(qp);
        return;
    }
    if (!may_retry(qp)) {
        return;
    }
    if (requester.stalled) {
        // The connection is full, because the other process is stopped or the other host does not
        // respond. The connection still contains the requests, so do not send them again.
        start_timer(qp);
        return;
    }
    resend(qp);
    run(qp);
    if (requester.stalled && !requester.timed) {
        start_timer(qp);
    }
}

void Engine::moderated(Cq& cq, std::uint64_t period_ns) {
    Implementation& engine = *implementation_;
    std::erase_if(engine.moderated, [&cq](const auto& event) { return event.cq == &cq; });
    if (period_ns != 0) {
        engine.moderated.push_back({fabric::now_ns() + period_ns, &cq});
        engine.wake_agent_before(engine.moderated.back().due);
    }
}

void Engine::Implementation::raise_moderated(std::uint64_t now) {
    std::vector<Cq*> due;
    for (const ModeratedEvent& event : moderated) {
        if (event.due <= now) {
            due.push_back(event.cq);
        }
    }
    for (Cq* const cq : due) {
        notify(*cq); // removes the event of the queue from "moderated"
    }
}

void Engine::Implementation::deliver_delayed(std::uint64_t now) {
    send_delayed(take_if(delayed, [now](const Delayed& late) { return late.due <= now; }), now);
}

void Engine::Implementation::send_late_packets(std::uint32_t source) {
    const auto is_wanted = [source](const Delayed& late) {
        return late.source != 0 && (source == 0 || late.source == source);
    };
    send_delayed(take_if(delayed, is_wanted), fabric::now_ns());
}

void Engine::Implementation::send_delayed(std::vector<Delayed> due, std::uint64_t now) {
    std::vector<Delayed> again;
    for (Delayed& late : due) {
        if (late.to == nullptr) {
            deliver_local(late.lane, late.record);
            continue;
        }
        const std::span<const std::byte> whole(late.record);
        // Delayed packets of one queue pair must stay in order. Therefore a packet must wait if an
        // earlier delayed packet did not fit into the same ring.
        const bool waits = late.source != 0 && std::ranges::any_of(again, [&](const Delayed& one) {
                               return one.to == late.to && one.lane == late.lane;
                           });
        if (waits ||
            (still_holds(whole) && late.to->send(late.lane, {&whole, 1}) == fabric::Sent::full &&
             late.source != 0)) {
            late.due = now + 100'000;
            again.push_back(std::move(late));
        }
    }
    // Later packets of the same queue pairs must not be sent before the packets in "again".
    for (Delayed& late : delayed) {
        if (std::ranges::any_of(again, [&](const Delayed& one) {
                return one.source == late.source && one.lane == late.lane;
            })) {
            late.due = std::max(late.due, now + 100'000);
        }
    }
    if (!again.empty()) {
        wake_agent_before(again.front().due);
    }
    delayed.insert(delayed.begin(), std::make_move_iterator(again.begin()),
                   std::make_move_iterator(again.end()));
}

} // namespace softverbs
