// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace rdmabuf::detail {

/// Reads the next event of @p channel without waiting. The descriptor of @p channel must be
/// non-blocking, and the caller must acknowledge the event.
/// @return the completion queue of the event; null if there is no event
/// @throws Error with the errno value of ibv_get_cq_event(3)
[[nodiscard]] ibv_cq* take_event(ibv_comp_channel* channel);
/// Waits for one event of @p channel. The descriptor of @p channel must be non-blocking, and the
/// caller must acknowledge the event.
/// @return the completion queue of the event; null if @p timeout expired
/// @throws Error with the errno value of ibv_get_cq_event(3) or poll(2)
[[nodiscard]] ibv_cq* wait_event(ibv_comp_channel* channel, std::chrono::milliseconds timeout);

/// Counts the unacknowledged events of one completion queue, and selects the thread that waits for
/// the next event. All copies of a CompletionQueue share one object.
class CqEvents {
  public:
    enum class Acknowledgement : std::uint8_t {
        /// One call of ibv_ack_cq_events(3) acknowledges several events. The last events are
        /// acknowledged before the queue is destroyed.
        batched,
        /// Each event is acknowledged at once, because code outside this library destroys the
        /// queue.
        immediate,
    };

    explicit CqEvents(Acknowledgement acknowledgement) noexcept
        : unacknowledged_(acknowledgement == Acknowledgement::immediate ? immediate : 0) {}

    /// Acknowledges one event of @p cq: at once with Acknowledgement::immediate and after
    /// stop_batching(). Otherwise the event is counted, and every 64th call acknowledges all events
    /// that were counted, because ibv_ack_cq_events(3) locks a mutex.
    void acknowledge(ibv_cq* cq) noexcept;
    /// Acknowledges all events of @p cq that were counted but not acknowledged. Must be called
    /// before the queue is destroyed.
    void acknowledge_all(ibv_cq* cq) noexcept;
    /// Acknowledges all events of @p cq that were counted but not acknowledged. Later events are
    /// acknowledged one by one.
    void stop_batching(ibv_cq* cq) noexcept;

    /// The permission of one thread to sleep on the channel. Only one thread may sleep, because an
    /// event wakes only one thread although completions may have arrived for several threads. When
    /// the woken thread releases its Turn, the other threads poll the queue, and one of them sleeps
    /// next.
    class Turn {
      public:
        /// If no other thread has a Turn, this thread may sleep on the channel at once. Otherwise
        /// waits until the other thread releases its Turn, or until @p timeout expires (at most one
        /// hour). After the wait, this thread may not sleep (see operator bool()), and the caller
        /// must poll the queue again.
        Turn(CqEvents& events, std::chrono::milliseconds timeout);
        ~Turn();
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;
        /// Returns true if this thread may sleep on the channel.
        explicit operator bool() const noexcept { return owned_; }

      private:
        CqEvents& events_;
        bool owned_ = false;
    };

  private:
    static constexpr std::uint32_t immediate = 1U << 31U;

    /// The number of counted events that are not acknowledged yet. The bit `immediate` is set if
    /// each event is acknowledged at once.
    std::atomic<std::uint32_t> unacknowledged_;

    std::mutex mutex_;
    std::condition_variable turn_given_up_;
    bool turn_taken_ = false;
};

} // namespace rdmabuf::detail
