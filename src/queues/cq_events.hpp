// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace rdmabuf::detail {

/// Takes the next event of @p channel without waiting, and does not acknowledge it. The file
/// descriptor of @p channel must be non-blocking.
/// @return the queue of the event, nullptr when there is no event
/// @throws Error with the errno of ibv_get_cq_event(3)
[[nodiscard]] ibv_cq* take_event(ibv_comp_channel* channel);
/// Waits for one event of @p channel, and does not acknowledge it; otherwise as
/// take_event().
/// @return the queue of the event, nullptr when the time has run out
[[nodiscard]] ibv_cq* wait_event(ibv_comp_channel* channel, std::chrono::milliseconds timeout);

/// The events of one completion queue: the threads that wait for them, and the events that are not
/// acknowledged. Shared by all copies of a CompletionQueue.
class CqEvents {
  public:
    /// When the events of the queue are acknowledged.
    enum class Acknowledgement : std::uint8_t {
        /// Several events together, and the rest before the queue is destroyed.
        batched,
        /// Each event at once: other code destroys the queue.
        immediate,
    };

    explicit CqEvents(Acknowledgement acknowledgement) noexcept
        : unacknowledged_(acknowledgement == Acknowledgement::immediate ? immediate : 0) {}

    /// Counts an event of @p cq as acknowledged by the program. ibv_ack_cq_events(3) takes a mutex,
    /// so it is called for each 64th event only.
    void acknowledge(ibv_cq* cq) noexcept;
    /// Acknowledges all counted events of @p cq: before the queue is destroyed.
    void acknowledge_all(ibv_cq* cq) noexcept;
    /// As acknowledge_all(), and later events are acknowledged at once.
    void stop_batching(ibv_cq* cq) noexcept;

    /// The right of one thread to sleep on the channel. Only one thread sleeps, because an event
    /// wakes one thread while there may be completions for several. When that thread returns, the
    /// others poll, and one of them sleeps on the channel next.
    class Turn {
      public:
        /// Waits until this thread may sleep on the channel, another thread has given up that right
        /// or @p timeout has passed. In the last two cases the queue must be polled again.
        Turn(CqEvents& events, std::chrono::milliseconds timeout);
        ~Turn();
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;
        /// Whether this thread may sleep on the channel.
        explicit operator bool() const noexcept { return owned_; }

      private:
        CqEvents& events_;
        bool owned_ = false;
    };

  private:
    static constexpr std::uint32_t immediate = 1U << 31U;

    /// The number of counted events that are not acknowledged, or the flag "immediate".
    std::atomic<std::uint32_t> unacknowledged_;

    std::mutex mutex_;
    std::condition_variable turn_given_up_;
    bool turn_taken_ = false;
};

} // namespace rdmabuf::detail
