// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <system_error>

#include "abi/entry.hpp"
#include "control/settings.hpp"
#include "fabric/rendezvous.hpp"
#include "objects/completion_queue.hpp"

using namespace softverbs;

SOFTVERBS_ENTRY const char* softverbs_profile_names() {
    try {
        static const std::string names = [] {
            std::string list = profile_names(); // separated by ", "
            std::erase(list, ',');
            return list;
        }();
        return names.c_str();
    } catch (const std::bad_alloc&) {
        return fail(ENOMEM);
    }
}

SOFTVERBS_ENTRY const char* softverbs_directory() {
    try {
        static const std::string* path = nullptr;
        const Guard guard;
        if (path == nullptr) {
            std::string name = fabric::default_directory();
            const fabric::Rendezvous checked(name);
            path = new std::string(std::move(name)); // never freed: callers keep it
        }
        return path->c_str();
    } catch (const std::system_error& error) {
        std::fprintf(stderr, "softverbs: %s\n", error.what());
        return fail(error.code().value());
    } catch (const std::bad_alloc&) {
        return fail(ENOMEM);
    }
}

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
