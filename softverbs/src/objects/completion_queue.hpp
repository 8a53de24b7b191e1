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
struct Cq;

struct Channel : ibv_comp_channel { // refcnt counts its CQs
    EventDescriptor events;
    std::deque<Cq*> queue;
};

struct Completion {
    ibv_wc wc{};
    bool solicited = false;
    /// Of CLOCK_MONOTONIC and CLOCK_REALTIME, in nanoseconds; only in queues made to have them.
    std::uint64_t timestamp_ns = 0;
    std::uint64_t wallclock_ns = 0;
};

struct Cq : ibv_cq_ex { // an ibv_cq* to it is one of its own
    /// A ring that grows until it has room for cqe entries, always a power of two: those from taken
    /// to pushed are there to be polled.
    std::vector<Completion> ring;
    std::uint64_t pushed = 0;
    std::uint64_t taken = 0;
    /// Overran, or the device is dead: polling fails.
    bool broken = false;
    bool armed = false;
    bool armed_solicited_only = false;
    /// Those pushed before this one have been told of by an event.
    std::uint64_t notified = 0;
    /// Pushed before the next arming takes effect.
    std::vector<Completion> before_arming;
    /// Events of both kinds; see acknowledgements.hpp.
    std::uint32_t unacknowledged = 0;
    /// Queue pairs that use it, each counted for both of its sides.
    unsigned users = 0;
    std::uint32_t wc_flags = 0;
    bool single_threaded = false;
    bool ignore_overrun = false;
    /// Extended polling: what the read functions speak of.
    Completion current{};
    /// Held from start_poll() to end_poll(), unless single_threaded. Taken before Process::lock.
    std::mutex poll_lock;

    [[nodiscard]] ibv_cq* native() noexcept { return reinterpret_cast<ibv_cq*>(this); }
    [[nodiscard]] static Cq& of(ibv_cq* cq) noexcept { return *reinterpret_cast<Cq*>(cq); }
    [[nodiscard]] static Cq& of(ibv_cq_ex* cq) noexcept { return static_cast<Cq&>(*cq); }
};

// The verbs, with the lock held; see memory.hpp.
[[nodiscard]] Channel* create_channel(Context& context);
[[nodiscard]] int destroy_channel(Channel& channel);
[[nodiscard]] Cq* create_cq(Context& context, const ibv_cq_init_attr_ex& attributes);
[[nodiscard]] int resize_cq(Cq& cq, int entries);
[[nodiscard]] int modify_cq(Cq& cq, const ibv_modify_cq_attr& attributes);
/// Waits until all events are acknowledged, so it takes the lock itself.
[[nodiscard]] int destroy_cq(Cq& cq);
[[nodiscard]] int request_notification(Cq& cq, bool solicited_only);
/// 0, or -1 and errno, as the verb. Waits, so it takes the lock itself.
[[nodiscard]] int get_cq_event(Channel& channel, ibv_cq** cq, void** cq_context);
void ack_cq_events(Cq& cq, unsigned count);

/// Fills in start_poll, the read functions, and their like.
void set_polling_functions(Cq& cq);

/// Takes up to @p out.size() completions: how many; negative when the queue is broken. Does not
/// look for new ones: Engine::progress() does.
[[nodiscard]] int take(Cq& cq, std::span<ibv_wc> out) noexcept;

/// Adds a completion and raises the event that was asked for. A queue that is full breaks
/// (IBV_EVENT_CQ_ERR), takes no more, and with it the queue pairs that use it (IBV_EVENT_QP_FATAL).
void push(Cq& cq, const Completion& completion);
void break_cq(Cq& cq);
/// Raises the event that was asked for, if one was.
void notify(Cq& cq);
/// Removes what is there of a queue pair that goes.
void forget(Cq& cq, std::uint32_t qp_number);

} // namespace softverbs
