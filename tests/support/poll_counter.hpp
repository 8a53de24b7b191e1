// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <functional>
#include <utility>

#include <rdmabuf/context.hpp>

namespace rdmabuf::testing {

/// Counts the calls of ibv_poll_cq(3) for the completion queues of a context, and can call a
/// function before each of them. There must be one object at a time.
class PollCounter {
  public:
    explicit PollCounter(const Context& context)
        : ops_(context.native()->ops), original_(ops_.poll_cq) {
        current = this;
        ops_.poll_cq = [](ibv_cq* cq, int count, ibv_wc* completions) {
            ++current->polls;
            // Call a copy, because the function may replace itself.
            if (const std::function<void()> action = current->action_) {
                action();
            }
            return current->original_(cq, count, completions);
        };
    }
    ~PollCounter() { ops_.poll_cq = original_; }
    PollCounter(const PollCounter&) = delete;
    PollCounter& operator=(const PollCounter&) = delete;

    void before_each_poll(std::function<void()> action) { action_ = std::move(action); }

    unsigned polls = 0;

  private:
    static inline PollCounter* current;

    ibv_context_ops& ops_;
    decltype(ibv_context_ops::poll_cq) original_;
    std::function<void()> action_;
};

} // namespace rdmabuf::testing
