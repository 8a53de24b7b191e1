// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/transport/detail/channel_state.hpp>

#include "waiting.hpp"

namespace rdmabuf::testing {

/// A device that reports the receives of a queue pair late: only when the queue pair is in the
/// error state, and the program has read the event that no further receive follows
/// (IBV_EVENT_QP_LAST_WQE_REACHED). Only one object may exist at a time.
class LateReceives {
  public:
    explicit LateReceives(transport::detail::SharedRail& late)
        : context_(late.cq.native()->context) {
        rail = &late;
        held.clear();
        original = std::exchange(context_->ops.poll_cq, poll);
    }
    ~LateReceives() { context_->ops.poll_cq = original; }
    LateReceives(const LateReceives&) = delete;
    LateReceives& operator=(const LateReceives&) = delete;

    [[nodiscard]] static std::size_t count() { return held.size(); }

  private:
    [[nodiscard]] static bool is_released(ibv_qp* pair) {
        ibv_qp_attr attributes{};
        ibv_qp_init_attr init{};
        return ::ibv_query_qp(pair, &attributes, IBV_QP_STATE, &init) == 0 &&
               attributes.qp_state == IBV_QPS_ERR && !is_readable(pair->context->async_fd);
    }
    static int poll(ibv_cq* cq, int count, ibv_wc* completions) {
        if (cq == rail->cq.native() && !held.empty() && is_released(queue_pair)) {
            *completions = held.back();
            held.pop_back();
            return 1;
        }
        int polled = original(cq, count, completions);
        for (int i = 0; i < polled && cq == rail->cq.native();) {
            if ((completions[i].opcode & IBV_WC_RECV) != 0) {
                const auto& found = rail->queue_pairs.find(completions[i].qp_num);
                queue_pair = found.channel->rails()[found.rail].queue_pair.native();
                held.push_back(completions[i]);
                completions[i] = completions[--polled];
            } else {
                ++i;
            }
        }
        return polled;
    }

    static inline transport::detail::SharedRail* rail;
    static inline ibv_qp* queue_pair;
    static inline std::vector<ibv_wc> held;
    static inline int (*original)(ibv_cq*, int, ibv_wc*);
    ibv_context* context_;
};

/// Returns the number of receives that can still be posted to the shared receive queue of a device:
/// as many as are missing. The queue cannot be used any more.
[[nodiscard]] inline unsigned missing_receives(transport::detail::SharedRail& rail) {
    unsigned missing = 0;
    while (rail.srq.post_recv(std::span<const ibv_sge>(), 0)) {
        ++missing;
    }
    return missing;
}

} // namespace rdmabuf::testing
