// SPDX-License-Identifier: BSD-3-Clause
#include "objects/completion_queue.hpp"

#include <errno.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

#include "fabric/clock.hpp"
#include "objects/acknowledgements.hpp"
#include "objects/parent_domain.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"
#include "objects/scatter_to_cqe.hpp"

namespace softverbs {

namespace {

/// Initial size of Cq::ring in completions, unless ibv_cq::cqe is smaller.
constexpr std::size_t initial_entries = 256;

constexpr std::uint64_t known_wc_flags = IBV_CREATE_CQ_SUP_WC_FLAGS;
constexpr std::uint64_t efa_wc_flags = IBV_WC_STANDARD_FLAGS;
constexpr unsigned known_cq_flags =
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

int check(Context& context, const ibv_cq_init_attr_ex& attributes) {
    const Device& device = *context.device;
    const auto max = static_cast<std::uint32_t>(device.attributes.orig_attr.max_cqe);
    if (device.rules.is_efa &&
        (attributes.comp_mask != 0 || (attributes.wc_flags & ~efa_wc_flags) != 0)) {
        return EOPNOTSUPP; // as in libefa
    }
    const bool has_flags = (attributes.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
    if (attributes.cqe < 1 || attributes.cqe > max ||
        attributes.comp_vector >= static_cast<std::uint32_t>(device.completion_vectors) ||
        (attributes.comp_mask &
         ~unsigned{IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD}) != 0 ||
        (attributes.wc_flags & ~known_wc_flags) != 0 ||
        (has_flags && (attributes.flags & ~known_cq_flags) != 0) ||
        (attributes.channel != nullptr && attributes.channel->context != &context.context)) {
        return EINVAL;
    }
    constexpr std::uint64_t timestamps =
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    if ((attributes.wc_flags & timestamps) != 0 && !has_clock(device)) {
        return EOPNOTSUPP;
    }
    // The program can specify a parent domain for the completion queue. Reject an ordinary
    // protection domain, because it would have no effect.
    if ((attributes.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 &&
        (attributes.parent_domain == nullptr ||
         attributes.parent_domain->context != &context.context ||
         ParentDomain::of(attributes.parent_domain) == nullptr)) {
        return EINVAL;
    }
    return may_create(SOFTVERBS_CQ, device.attributes.orig_attr.max_cq) ? 0 : ENOMEM;
}

/// Moves the completions of the completion queue to a new ring with @p entries entries. This number
/// must be a power of two.
void move_to(Cq& cq, std::size_t entries) {
    std::vector<Completion> ring(entries);
    for (std::uint64_t i = cq.taken; i != cq.pushed; ++i) {
        ring[i & (entries - 1)] = cq.ring[i & cq.mask];
    }
    cq.ring = std::move(ring);
    cq.mask = entries - 1;
}

/// Makes room for one more completion in the ring. If the completion queue is full and
/// ignore_overrun is set, removes the oldest completion. Returns false if the queue overruns: it is
/// full and ignore_overrun is not set, or no memory is left.
bool make_room(Cq& cq) {
    const std::size_t there = cq.pushed - cq.taken;
    if (there == static_cast<std::size_t>(cq.cqe)) {
        if (!cq.ignore_overrun) {
            return false;
        }
        if (cq.ring[cq.taken & cq.mask].has_scatter) {
            cq.scatters.pop_front();
        }
        ++cq.taken;
    } else if (there == cq.ring.size()) {
        try {
            move_to(cq, cq.ring.size() * 2);
        } catch (const std::bad_alloc&) {
            return false;
        }
    }
    return true;
}

/// Raises the completion event now, or later if event moderation is enabled: after
/// moderation.cq_count completions, or moderation.cq_period microseconds after the first of these
/// completions.
void notify_moderated(Cq& cq) {
    if (cq.moderation.cq_count <= 1 || cq.moderation.cq_period == 0 ||
        ++cq.moderated >= cq.moderation.cq_count) {
        notify(cq);
    } else if (cq.moderated == 1) {
        process().engine.moderated(cq, std::uint64_t{cq.moderation.cq_period} * 1000);
    }
}

/// Returns whether this completion raises the event of an armed completion queue. If the program
/// has requested only solicited events, completions without an error and without the solicited bit
/// raise no event.
bool raises_event(const Cq& cq, const Completion& completion) noexcept {
    return !cq.armed_solicited_only || completion.solicited ||
           completion.wc.status != IBV_WC_SUCCESS;
}

} // namespace

Cq* create_cq(Context& context, const ibv_cq_init_attr_ex& attributes) {
    if (const int error = check(context, attributes); error != 0) {
        return fail(error);
    }
    auto cq = std::make_unique<Cq>();
    cq->ring.resize(std::min(initial_entries, std::bit_ceil(std::size_t{attributes.cqe})));
    cq->mask = cq->ring.size() - 1;
    static std::uint32_t handles = 0;
    cq->context = &context.context;
    cq->channel = attributes.channel;
    cq->cq_context = attributes.cq_context;
    cq->handle = ++handles;
    cq->cqe = static_cast<int>(attributes.cqe);
    pthread_mutex_init(&cq->mutex, nullptr);
    pthread_cond_init(&cq->cond, nullptr);
    cq->wc_flags = static_cast<std::uint32_t>(attributes.wc_flags);
    if ((attributes.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0) {
        cq->single_threaded = (attributes.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
        cq->ignore_overrun = (attributes.flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0;
    }
    if ((attributes.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
        cq->parent = static_cast<Pd*>(attributes.parent_domain);
        ++cq->parent->users;
        // As in libefa, but not in libmlx5, a thread domain makes the completion queue
        // single-threaded.
        cq->single_threaded |=
            ParentDomain::of(cq->parent)->td != nullptr && !context.device->rules.is_mlx5;
    }
    if (context.device->rules.is_efa) {
        // As libefa does, round the number of entries up to a power of two.
        cq->cqe = static_cast<int>(std::bit_ceil(attributes.cqe));
        cq->efa.owner = cq.get();
    }
    set_polling_functions(*cq);
    if (cq->channel != nullptr) {
        ++cq->channel->refcnt;
    }
    count(context, SOFTVERBS_CQ, 1);
    return cq.release();
}

int resize_cq(Cq& cq, int entries) {
    if (device_of(cq).rules.is_efa) {
        return EOPNOTSUPP; // as in libefa
    }
    if (entries < 1 || entries > device_of(cq).attributes.orig_attr.max_cqe ||
        cq.pushed - cq.taken > static_cast<std::uint64_t>(entries)) {
        return EINVAL;
    }
    const std::size_t needed = std::bit_ceil(static_cast<std::size_t>(entries));
    if (needed < cq.ring.size()) {
        move_to(cq, needed);
    }
    cq.cqe = entries;
    return 0;
}

int modify_cq(Cq& cq, const ibv_modify_cq_attr& attributes) {
    const ibv_cq_moderation_caps& most = device_of(cq).attributes.cq_mod_caps;
    if (attributes.attr_mask != IBV_CQ_ATTR_MODERATE || most.max_cq_count == 0) {
        return EOPNOTSUPP;
    }
    if (attributes.moderate.cq_count > most.max_cq_count ||
        attributes.moderate.cq_period > most.max_cq_period) {
        return EINVAL;
    }
    cq.moderation = attributes.moderate;
    return 0;
}

int destroy_cq(Cq& cq) {
    std::unique_lock lock(process().lock);
    if (cq.users != 0) {
        return busy();
    }
    cq.armed = false;
    // Cancel a delayed event before the wait below. The queue is no longer armed, so notify() would
    // not remove the event, and the agent thread would call notify() again and again.
    process().engine.moderated(cq, 0);
    auto* channel = static_cast<Channel*>(cq.channel);
    if (channel != nullptr) {
        for (auto gone = std::erase(channel->queue, &cq); gone != 0; --gone) {
            channel->events.retract();
        }
    }
    forget_events(context_of(cq), cq.native());
    wait_for_acknowledgements(cq, lock);
    if (channel != nullptr) {
        --channel->refcnt;
    }
    if (cq.parent != nullptr) {
        --cq.parent->users;
    }
    count(context_of(cq), SOFTVERBS_CQ, -1);
    pthread_cond_destroy(&cq.cond);
    pthread_mutex_destroy(&cq.mutex);
    delete &cq;
    return 0;
}

int request_notification(Cq& cq, bool solicited_only) {
    const std::uint64_t there = cq.pushed;
    for (const Completion& completion : cq.before_arming) {
        push(cq, completion);
    }
    cq.before_arming.clear();
    // A request for solicited events only does not restrict a completion queue that is already
    // armed for all completions.
    cq.armed_solicited_only = solicited_only && (!cq.armed || cq.armed_solicited_only);
    cq.armed = true;
    // As on a NIC, completions that were neither polled nor reported by an earlier event raise an
    // event now. UCX needs this event, because it does not poll between arming and sleeping. The
    // event reports only the first of these completions, and the next call raises an event for the
    // next one. perftest needs this, because it polls at most 16 completions per event.
    for (std::uint64_t next = std::max(cq.taken, cq.notified); cq.armed && next < there; ++next) {
        if (raises_event(cq, cq.ring[next & cq.mask])) {
            notify(cq);
            cq.notified = next + 1;
        }
    }
    return 0;
}

const Completion& take_one(Cq& cq) noexcept {
    const Completion& completion = cq.ring[cq.taken++ & cq.mask];
    if (completion.has_scatter) [[unlikely]] {
        scatter(cq.scatters.front());
        cq.scatters.pop_front();
    }
    release_slots(completion);
    return completion;
}

int take(Cq& cq, std::span<ibv_wc> out) noexcept {
    if (cq.broken) {
        return -1;
    }
    const std::size_t count = std::min<std::size_t>(out.size(), cq.pushed - cq.taken);
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = take_one(cq).wc;
    }
    return static_cast<int>(count);
}

Completion* begin_push_slowly(Cq& cq) {
    if (cq.broken) {
        return nullptr;
    }
    if (!make_room(cq)) {
        break_cq(cq);
        return nullptr;
    }
    return &cq.ring[cq.pushed & cq.mask];
}

void end_push_slowly(Cq& cq, Completion& completion) {
    if ((cq.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0) {
        completion.timestamp = clock_ticks(device_of(cq));
    }
    if ((cq.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0) {
        completion.wallclock_ns = fabric::wall_clock_ns();
    }
    if (cq.armed && raises_event(cq, completion)) {
        notify_moderated(cq);
    }
}

namespace {

/// Adds the data of a completion to Cq::scatters. Returns false if there is not enough memory; the
/// data is then already in the buffers of the work request.
[[gnu::noinline]] bool keep(Cq& cq, const Scatter& data) {
    try {
        cq.scatters.push_back(data);
        return true;
    } catch (const std::bad_alloc&) {
        scatter(data);
        return false;
    }
}

} // namespace

void push(Cq& cq, const Completion& completion, const Scatter* data) {
    // Add the data to Cq::scatters before the completion is added. Then Cq::scatters always
    // contains the data of each completion in the ring.
    const bool kept = data != nullptr && keep(cq, *data);
    if (Completion* const slot = begin_push(cq); slot != nullptr) {
        *slot = completion;
        slot->has_scatter = kept;
        end_push(cq, *slot);
    }
}

void break_cq(Cq& cq) {
    if (cq.broken) {
        return;
    }
    cq.broken = true;
    ibv_async_event event{};
    event.element.cq = cq.native();
    event.event_type = IBV_EVENT_CQ_ERR;
    raise_event(context_of(cq), event);
    for (Qp* qp : process().qps.all()) {
        if (qp != nullptr && (qp->send_queue == &cq || qp->recv_queue == &cq) &&
            qp->state() != IBV_QPS_RESET) {
            enter_error(*qp, IBV_EVENT_QP_FATAL);
        }
    }
}

void notify(Cq& cq) {
    if (!cq.armed) {
        return;
    }
    cq.armed = false;
    cq.notified = cq.pushed;
    if (std::exchange(cq.moderated, 0) != 0) {
        process().engine.moderated(cq, 0);
    }
    if (auto* channel = static_cast<Channel*>(cq.channel); channel != nullptr) {
        channel->queue.push_back(&cq);
        channel->events.raise();
    }
}

void forget(Cq& cq, std::uint32_t qp_number) {
    const std::uint64_t mask = cq.mask;
    std::uint64_t kept = cq.taken;
    auto data = cq.scatters.begin();
    for (std::uint64_t i = cq.taken; i != cq.pushed; ++i) {
        const bool is_kept = cq.ring[i & mask].wc.qp_num != qp_number;
        if (cq.ring[i & mask].has_scatter) {
            data = is_kept ? std::next(data) : cq.scatters.erase(data);
        }
        if (is_kept) {
            cq.ring[kept++ & mask] = cq.ring[i & mask];
        } else if (cq.ring[i & mask].srq != nullptr) {
            release_slots(cq.ring[i & mask]);
        }
    }
    cq.pushed = kept;
    cq.notified = std::min(cq.notified, kept);
}

void forget(Cq& cq, const Srq& srq) noexcept {
    for (std::uint64_t i = cq.taken; i != cq.pushed; ++i) {
        Completion& completion = cq.ring[i & cq.mask];
        if (completion.srq == &srq) {
            completion.qp = nullptr;
            completion.srq = nullptr;
        }
    }
}

} // namespace softverbs
