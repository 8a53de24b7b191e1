// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fake_rdmacm.hpp"

/// What the parts of the fake share.
namespace fake_rdmacm {

struct Id;

struct Event : rdma_cm_event {
    CmEvent spec;
    /// Ids that cannot go, or move, before it is acknowledged: rdma_destroy_id(3),
    /// rdma_migrate_id(3).
    std::vector<Id*> holders;
};

/// Both ends of a pipe.
struct Pipe {
    Pipe();
    ~Pipe();
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    int read_end = -1;
    int write_end = -1;
};

struct EventChannel : rdma_event_channel {
    Pipe pipe;
    std::deque<std::unique_ptr<Event>> waiting;
    unsigned ids = 0;
};

struct Id : rdma_cm_id {
    Id() : rdma_cm_id{} {}

    unsigned unacknowledged = 0;
};

struct State {
    std::recursive_mutex mutex;
    ibv_context* device = nullptr;
    Observer observer;
    Witness witness;
    std::map<std::string, std::optional<CmEvent>, std::less<>> answers;
    /// Function and errno.
    std::vector<std::pair<std::string, int>> failures;
    std::set<const EventChannel*> channels;
    std::set<const Id*> ids;
    std::map<rdma_cm_event*, std::unique_ptr<Event>> taken;
    std::vector<std::string> violations;

    void violation(const char* function, const std::string& what) {
        violations.push_back(std::string(function) + ": " + what);
    }
};

[[nodiscard]] State& state();
[[nodiscard]] std::unique_lock<std::recursive_mutex> lock();
/// What most calls begin with: 0, or -1 and errno when they are to fail.
[[nodiscard]] int enter(const char* function);
[[nodiscard]] int fail_with(int error);
void raise(rdma_cm_id* id, const CmEvent& spec);
/// What comes of a step.
void begin_step(const char* function, rdma_cm_id* id, rdma_cm_event_type success);
void find_device(rdma_cm_id& id);

[[nodiscard]] inline EventChannel& from(rdma_event_channel* native) {
    return static_cast<EventChannel&>(*native);
}
[[nodiscard]] inline Id& from(rdma_cm_id* native) {
    return static_cast<Id&>(*native);
}
[[nodiscard]] Id* make_id(rdma_event_channel* channel);

} // namespace fake_rdmacm
