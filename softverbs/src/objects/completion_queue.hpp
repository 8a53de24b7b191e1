// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "objects/device.hpp"

namespace softverbs {

struct Qp;
struct Srq;
struct Cq;

struct Channel : ibv_comp_channel { // refcnt is the number of CQs that use it
    EventDescriptor events;
    std::deque<Cq*> queue;
};

struct Completion {
    ibv_wc wc{};
    bool solicited = false;
    /// User data in the header of a message that has matched a tagged buffer.
    __be32 tag_data = 0;
    /// Tag in the header of a message that has matched a tagged buffer.
    __be64 tag = 0;
    /// The queue pair whose queue slots become free when the program polls this completion. Null
    /// for messages in tagged buffers, for list operations of a shared receive queue, and for
    /// completions that a test has injected: no slots become free.
    Qp* qp = nullptr;
    /// The shared receive queue in which a slot becomes free, if the receive request came from it.
    /// If qp is null: the shared receive queue whose list operation has completed.
    Srq* srq = nullptr;
    /// The send queue slots before this position become free. 0: one receive queue slot becomes
    /// free.
    std::uint64_t send_limit = 0;
    /// Time of the completion by CLOCK_MONOTONIC, in nanoseconds; 0 unless the queue was created
    /// with the timestamp flags.
    std::uint64_t timestamp_ns = 0;
    /// Time of the completion by CLOCK_REALTIME, in nanoseconds; 0 under the same condition.
    std::uint64_t wallclock_ns = 0;
};

// A completion queue. An ibv_cq* of this queue has the same address.
struct Cq : ibv_cq_ex {
    /// Ring of completions. Its size is a power of two and grows until it holds cqe entries. The
    /// completions from position taken up to position pushed wait to be polled.
    std::vector<Completion> ring;
    std::uint64_t pushed = 0;
    std::uint64_t taken = 0;
    /// The queue has overrun: polling fails.
    bool broken = false;
    bool armed = false;
    bool armed_solicited_only = false;
    /// Events were raised for all completions before this position.
    std::uint64_t notified = 0;
    /// Test completions, pushed by the next ibv_req_notify_cq() before it arms the queue.
    std::vector<Completion> before_arming;
    /// Completion events and asynchronous events together; see acknowledgements.hpp.
    std::uint32_t unacknowledged = 0;
    /// Number of references from queue pairs. A queue pair that uses this queue for sending and for
    /// receiving counts twice.
    unsigned users = 0;
    std::uint32_t wc_flags = 0;
    bool single_threaded = false;
    bool ignore_overrun = false;
    /// Parent domain of the queue, or null.
    Pd* parent = nullptr;
    /// Moderation of completion events; see ibv_modify_cq(3).
    ibv_moderate_cq moderation{};
    /// Number of completions since the queue was armed whose event is delayed by moderation.
    unsigned moderated = 0;
    /// Extended polling: the completion that the ibv_wc_read_*() functions return.
    Completion current{};
    /// Held from start_poll() to end_poll(), unless single_threaded. It is locked before
    /// Process::lock.
    std::mutex poll_lock;

    [[nodiscard]] ibv_cq* native() noexcept { return reinterpret_cast<ibv_cq*>(this); }
    [[nodiscard]] static Cq& of(ibv_cq* cq) noexcept { return *reinterpret_cast<Cq*>(cq); }
    [[nodiscard]] static Cq& of(ibv_cq_ex* cq) noexcept { return static_cast<Cq&>(*cq); }
};

// The functions below implement the verbs of the same name. The caller holds Process::lock; see
// memory.hpp.
[[nodiscard]] Channel* create_channel(Context& context);
[[nodiscard]] int destroy_channel(Channel& channel);
[[nodiscard]] Cq* create_cq(Context& context, const ibv_cq_init_attr_ex& attributes);
[[nodiscard]] int resize_cq(Cq& cq, int entries);
[[nodiscard]] int modify_cq(Cq& cq, const ibv_modify_cq_attr& attributes);
/// Implements ibv_destroy_cq(). It locks Process::lock itself, because it waits until all events
/// are acknowledged.
[[nodiscard]] int destroy_cq(Cq& cq);
[[nodiscard]] int request_notification(Cq& cq, bool solicited_only);
/// Implements ibv_get_cq_event(). Returns 0, or -1 and sets errno. It locks Process::lock itself,
/// and releases it while it waits.
[[nodiscard]] int get_cq_event(Channel& channel, ibv_cq** cq, void** cq_context);
void ack_cq_events(Cq& cq, unsigned count);

/// Sets the function pointers of ibv_start_poll() and ibv_wc_read_*().
void set_polling_functions(Cq& cq);

/// Removes up to @p out.size() completions and returns their number; -1 when the queue has overrun.
/// Does not receive packets first: Engine::progress() does that.
[[nodiscard]] int take(Cq& cq, std::span<ibv_wc> out) noexcept;

/// Slow paths of begin_push() and end_push().
[[nodiscard]] Completion* begin_push_slowly(Cq& cq);
void end_push_slowly(Cq& cq, Completion& completion);

/// Adds a completion, and raises an event if the queue is armed. If the queue is full, it overruns:
/// it raises IBV_EVENT_CQ_ERR and takes no more completions, and its queue pairs enter the error
/// state (IBV_EVENT_QP_FATAL).
void push(Cq& cq, const Completion& completion);
/// push() in two steps, so that the completion is built in the ring. begin_push() returns the ring
/// entry for it. The members of the entry have old values and must all be set, except the
/// timestamps. Returns null if the queue has overrun before or overruns now, as described at
/// push().
[[nodiscard]] inline Completion* begin_push(Cq& cq) {
    const std::uint64_t count = cq.pushed - cq.taken;
    if (!cq.broken && count != static_cast<std::uint64_t>(cq.cqe) && count != cq.ring.size())
        [[likely]] {
        return &cq.ring[cq.pushed & (cq.ring.size() - 1)];
    }
    return begin_push_slowly(cq);
}
inline void end_push(Cq& cq, Completion& completion) {
    constexpr std::uint32_t timestamps =
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    ++cq.pushed;
    if (cq.armed || (cq.wc_flags & timestamps) != 0) [[unlikely]] {
        end_push_slowly(cq, completion);
    }
}
void break_cq(Cq& cq);
/// Raises a completion event if the queue is armed, and disarms it.
void notify(Cq& cq);
/// Removes the completions of a queue pair that is reset or destroyed, and frees the slots that its
/// completions occupy in a shared receive queue.
void forget(Cq& cq, std::uint32_t qp_number);

} // namespace softverbs
