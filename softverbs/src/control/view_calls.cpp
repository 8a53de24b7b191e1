// SPDX-License-Identifier: BSD-3-Clause
#include <numeric>

#include "abi/entry.hpp"
#include "objects/completion_queue.hpp"

using namespace softverbs;

SOFTVERBS_ENTRY std::size_t softverbs_live(softverbs_kind kind) {
    const Guard guard;
    const auto& live = process().live;
    if (kind == SOFTVERBS_KINDS) {
        return std::accumulate(live.begin(), live.end(), std::size_t{0});
    }
    return kind < SOFTVERBS_KINDS ? live[kind] : 0;
}

SOFTVERBS_ENTRY unsigned softverbs_violations() {
    const Guard guard;
    return process().violations;
}

SOFTVERBS_ENTRY unsigned softverbs_unacknowledged_events() {
    const Guard guard;
    return process().unacknowledged_events;
}

SOFTVERBS_ENTRY int softverbs_cq_armed(ibv_cq* cq) {
    const Guard guard;
    return Cq::of(cq).armed ? 1 : 0;
}

SOFTVERBS_ENTRY const char* softverbs_pull_method() {
    const Guard guard;
    return process().engine.pull_method();
}

SOFTVERBS_ENTRY void softverbs_get_counters(softverbs_counters* counters) {
    const Guard guard;
    *counters = process().counters;
}
