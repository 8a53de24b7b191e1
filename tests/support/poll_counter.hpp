// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <functional>
#include <utility>

#include <rdmabuf/context.hpp>

namespace rdmabuf::testing {

/// Counts the calls of ibv_poll_cq(3) for the completion queues of a context, and can call a
/// function before or in place of each of them. There must be one object at a time.
class PollCounter {
  public:
    using Poll = std::function<int(ibv_cq*, int, ibv_wc*)>;

    /// @param instead  called in place of the function of the device
    explicit PollCounter(const Context& context, Poll instead = &PollCounter::poll)
        : ops_(context.native()->ops), original_(ops_.poll_cq), instead_(std::move(instead)) {
        current = this;
        ops_.poll_cq = [](ibv_cq* cq, int count, ibv_wc* completions) {
            ++current->polls;
            // Call a copy, because the function may replace itself.
            if (const std::function<void()> action = current->action_) {
                action();
            }
            return current->instead_(cq, count, completions);
        };
    }
    ~PollCounter() { ops_.poll_cq = original_; }
    PollCounter(const PollCounter&) = delete;
    PollCounter& operator=(const PollCounter&) = delete;

    /// Calls the function of the device.
    static int poll(ibv_cq* cq, int count, ibv_wc* completions) {
        return current->original_(cq, count, completions);
    }
    void before_each_poll(std::function<void()> action) { action_ = std::move(action); }

    mutable unsigned polls = 0;

  private:
    static inline PollCounter* current;

    ibv_context_ops& ops_;
    decltype(ibv_context_ops::poll_cq) original_;
    Poll instead_;
    std::function<void()> action_;
};

} // namespace rdmabuf::testing
