// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/efadv.h>
#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <span>
#include <vector>

#include "objects/device.hpp"

namespace softverbs {

struct Qp;
struct Srq;
struct Cq;

struct Channel : ibv_comp_channel { // refcnt is the number of CQs that use the channel
    EventDescriptor events;
    std::deque<Cq*> queue;
};

struct Completion {
    ibv_wc wc{};
    bool solicited = false;
    /// Whether data must be copied when the program polls this completion (scatter-to-CQE). The
    /// data is an element of Cq::scatters.
    bool has_scatter = false;
    /// User data from the tag matching header, for a message that was received in a tagged buffer.
    __be32 tag_data = 0;
    /// Tag from the tag matching header, for a message that was received in a tagged buffer.
    __be64 tag = 0;
    /// The queue pair of the work request. When the program polls the completion, the queue entry
    /// of this work request is freed. Null for completions without a queue entry: those of messages
    /// in tagged buffers, those of ibv_post_srq_ops(), those whose shared receive queue has been
    /// destroyed, and those that a test has added.
    Qp* qp = nullptr;
    /// For a receive completion, the shared receive queue of the receive request. For a completion
    /// of ibv_post_srq_ops(), the shared receive queue of the operation; "qp" is null then.
    /// Otherwise null.
    Srq* srq = nullptr;
    /// For a send completion: when the program polls it, the entries of the send queue before this
    /// position are freed. On an SRD queue pair: 1, because polling frees one entry of the send
    /// queue. For a receive completion: 0, because polling frees one entry of the receive queue.
    std::uint64_t send_limit = 0;
    /// Time of the completion by the clock of the device in ticks; see clock_ticks(). 0 if the
    /// completion queue was created without IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.
    std::uint64_t timestamp = 0;
    /// Time of the completion by CLOCK_REALTIME in nanoseconds. 0 if the completion queue was
    /// created without IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK.
    std::uint64_t wallclock_ns = 0;
    /// The GID of the sender. Only for receive completions with the device profile efa.
    ibv_gid source_gid{};
};

/// Data that the CPU copies when the program polls a completion, and the addresses to which it
/// copies the data; see scatter_to_cqe.hpp.
struct Scatter {
    struct Target {
        std::uint64_t address;
        std::uint32_t length;
    };
    std::array<std::byte, 64> data{};
    std::uint32_t length = 0;
    std::uint32_t targets = 0;
    std::array<Target, 16> target{};
};

/// The object that efadv_cq_from_ibv_cq_ex() returns for a completion queue.
struct EfaCq : efadv_cq {
    Cq* owner = nullptr;
};

// A completion queue. The ibv_cq that the program uses has the same address.
struct Cq : ibv_cq_ex {
    /// A ring of the completions that the program has not polled: those from position "taken" up to
    /// the position before "pushed". The size of the ring is a power of two. The ring grows until
    /// it can contain ibv_cq::cqe completions.
    std::vector<Completion> ring;
    /// ring.size() - 1. A completion at a position has the index (position & mask) in the ring.
    std::uint64_t mask = 0;
    std::uint64_t pushed = 0;
    std::uint64_t taken = 0;
    /// The data of the completions whose member "has_scatter" is true, in the order of these
    /// completions. When the program polls such a completion, the data is copied to the addresses
    /// in the work request (scatter-to-CQE).
    std::list<Scatter> scatters;
    /// Whether the completion queue has overrun. If so, polling fails.
    bool broken = false;
    bool armed = false;
    bool armed_solicited_only = false;
    /// An earlier completion event has reported the completions before this position in the ring.
    /// When the program arms the completion queue, these completions raise no event.
    std::uint64_t notified = 0;
    /// Completions that a test has added with softverbs_complete_before_request(). The next call of
    /// ibv_req_notify_cq() adds them to the queue before it arms the queue, so they raise no event
    /// unless the queue was armed before.
    std::vector<Completion> before_arming;
    /// Number of completion events and asynchronous events of this completion queue that the
    /// program has received and not acknowledged; see acknowledgements.hpp.
    std::uint32_t unacknowledged = 0;
    /// Number of queue pairs and shared receive queues that use this completion queue. A queue pair
    /// that uses it for sends and receives counts twice.
    unsigned users = 0;
    std::uint32_t wc_flags = 0;
    bool single_threaded = false;
    bool ignore_overrun = false;
    /// The parent domain with which the completion queue was created, or null.
    Pd* parent = nullptr;
    /// Settings for the moderation of completion events; see ibv_modify_cq(3).
    ibv_moderate_cq moderation{};
    /// If event moderation is enabled: number of completions, since the completion queue was armed,
    /// for which raises_event() was true. The event is raised when this number reaches
    /// moderation.cq_count, or moderation.cq_period microseconds after the first of these
    /// completions.
    unsigned moderated = 0;
    /// The completion that ibv_start_poll() or ibv_next_poll() has polled last. The ibv_wc_read_*()
    /// functions read it.
    Completion current{};
    EfaCq efa{};
    /// Locked from ibv_start_poll() to ibv_end_poll(), except in a single-threaded completion
    /// queue. A thread that takes both locks must take poll_lock before Process::lock.
    std::mutex poll_lock;
    /// For a single-threaded completion queue: whether the program is between ibv_start_poll() and
    /// ibv_end_poll(). If a second thread polls the queue at the same time, that is a violation (an
    /// error of the program, see softverbs_violations()).
    std::atomic<bool> polled = false;

    [[nodiscard]] ibv_cq* native() noexcept { return reinterpret_cast<ibv_cq*>(this); }
    [[nodiscard]] static Cq& of(ibv_cq* cq) noexcept { return *reinterpret_cast<Cq*>(cq); }
    [[nodiscard]] static Cq& of(ibv_cq_ex* cq) noexcept { return static_cast<Cq&>(*cq); }
};

// These functions implement verbs with similar names; create_channel() implements
// ibv_create_comp_channel(). The caller must hold Process::lock, except as noted.
[[nodiscard]] Channel* create_channel(Context& context);
[[nodiscard]] int destroy_channel(Channel& channel);
[[nodiscard]] Cq* create_cq(Context& context, const ibv_cq_init_attr_ex& attributes);
[[nodiscard]] int resize_cq(Cq& cq, int entries);
[[nodiscard]] int modify_cq(Cq& cq, const ibv_modify_cq_attr& attributes);
/// Implements ibv_destroy_cq(). The caller must not hold Process::lock: the function takes it, and
/// releases it while it waits for acknowledgements of events.
[[nodiscard]] int destroy_cq(Cq& cq);
[[nodiscard]] int request_notification(Cq& cq, bool solicited_only);
/// Implements ibv_get_cq_event(). Returns 0, or -1 with errno set. The caller must not hold
/// Process::lock.
[[nodiscard]] int get_cq_event(Channel& channel, ibv_cq** cq, void** cq_context);
void ack_cq_events(Cq& cq, unsigned count);

/// Sets the function pointers for extended polling, such as ibv_start_poll() and
/// ibv_wc_read_opcode().
void set_polling_functions(Cq& cq);

/// Removes up to out.size() completions from the completion queue, and stores them in @p out.
/// Returns their number, or -1 if the completion queue has overrun. Does not receive packets;
/// Engine::progress() does.
[[nodiscard]] int take(Cq& cq, std::span<ibv_wc> out) noexcept;

/// Does the work of begin_push() in infrequent cases, such as a full ring of completions.
[[nodiscard]] Completion* begin_push_slowly(Cq& cq);
/// Does the work of end_push() in infrequent cases, such as an armed completion queue.
void end_push_slowly(Cq& cq, Completion& completion);

/// Adds a completion to the completion queue. Raises a completion event if the queue is armed for
/// this completion; with event moderation, the event can be delayed. If the queue is full and
/// ignore_overrun is set, the oldest completion is lost. If the queue is full and ignore_overrun is
/// not set, or if no memory is left for the ring, the queue overruns: IBV_EVENT_CQ_ERR is raised,
/// no more completions are added, and the queue pairs that use the queue and are not in the reset
/// state enter the error state with IBV_EVENT_QP_FATAL.
/// @param data  for scatter-to-CQE: data that the CPU copies to the buffers of the work request
///     when the program polls the completion, or now if there is not enough memory to store the
///     data. Null: none
void push(Cq& cq, const Completion& completion, const Scatter* data = nullptr);
/// Like push(), but without a copy of the completion: returns an entry of the ring, in which the
/// caller must store the completion, and then call end_push(). The caller must set all members that
/// are used for this kind of completion, except the timestamps, because the entry contains an old
/// completion. Returns null if the queue has overrun.
[[nodiscard]] inline Completion* begin_push(Cq& cq) {
    const std::uint64_t count = cq.pushed - cq.taken;
    if (!cq.broken && count != static_cast<std::uint64_t>(cq.cqe) && count <= cq.mask) [[likely]] {
        return &cq.ring[cq.pushed & cq.mask];
    }
    return begin_push_slowly(cq);
}
/// Adds to the completion queue the entry that begin_push() has returned.
inline void end_push(Cq& cq, Completion& completion) {
    constexpr std::uint32_t timestamps =
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    ++cq.pushed;
    if (cq.armed || (cq.wc_flags & timestamps) != 0) [[unlikely]] {
        end_push_slowly(cq, completion);
    }
}
/// Removes the oldest completion, which the program polls, and returns it. Copies the data of
/// scatter-to-CQE, and frees the queue entry of the work request.
const Completion& take_one(Cq& cq) noexcept;
void break_cq(Cq& cq);
/// If the completion queue is armed, raises a completion event and disarms the queue.
void notify(Cq& cq);
/// Removes the completions of a queue pair that is being reset or destroyed. If their receive
/// requests came from a shared receive queue, frees the entries of these requests there.
void forget(Cq& cq, std::uint32_t qp_number);
/// Removes the references of unpolled completions to a shared receive queue that is being
/// destroyed.
void forget(Cq& cq, const Srq& srq) noexcept;

} // namespace softverbs
