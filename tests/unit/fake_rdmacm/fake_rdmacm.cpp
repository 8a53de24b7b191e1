// SPDX-License-Identifier: BSD-3-Clause
// What tests say and see of the fake.
#include "fake_rdmacm.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "state.hpp"

namespace fake_rdmacm {

State& state() {
    static State the_state;
    return the_state;
}

std::unique_lock<std::recursive_mutex> lock() {
    return std::unique_lock(state().mutex);
}

Pipe::Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        std::perror("pipe2");
        std::abort();
    }
    read_end = ends[0];
    write_end = ends[1];
}

Pipe::~Pipe() {
    ::close(read_end);
    ::close(write_end);
}

int fail_with(int error) {
    errno = error;
    return -1;
}

int enter(const char* function) {
    const auto guard = lock();
    auto& failures = state().failures;
    const auto planned =
        std::find_if(failures.begin(), failures.end(),
                     [function](const auto& failure) { return failure.first == function; });
    if (planned != failures.end()) {
        const int error = planned->second;
        failures.erase(planned);
        return fail_with(error);
    }
    const int error = state().observer ? state().observer(function) : 0;
    return error == 0 ? 0 : fail_with(error);
}

void raise(rdma_cm_id* id, const CmEvent& spec) {
    auto event = std::make_unique<Event>();
    event->spec = spec;
    event->id = id;
    event->event = spec.type;
    event->status = spec.status;
    from(id->channel).waiting.push_back(std::move(event));
    // One byte for each event makes the descriptor readable.
    if (::write(from(id->channel).pipe.write_end, "", 1) != 1) {
        state().violation("raise_cm_event", "the event was not written");
    }
}

void begin_step(const char* function, rdma_cm_id* id, rdma_cm_event_type success) {
    const auto answer = state().answers.find(function);
    if (answer == state().answers.end()) {
        raise(id, {.type = success});
    } else if (answer->second) {
        raise(id, *answer->second);
    }
}

void find_device(rdma_cm_id& id) {
    id.verbs = state().device;
    id.port_num = 1;
}

Id* make_id(rdma_event_channel* channel) {
    auto id = std::make_unique<Id>();
    id->channel = channel;
    ++from(channel).ids;
    state().ids.insert(id.get());
    return id.release();
}

void reset(ibv_context* device) {
    const auto guard = lock();
    state().device = device;
    state().observer = nullptr;
    state().witness = nullptr;
    state().answers.clear();
    state().failures.clear();
    state().violations.clear();
}

void before_each_call(Observer observer) {
    const auto guard = lock();
    state().observer = std::move(observer);
}

void after_each_destruction(Witness witness) {
    const auto guard = lock();
    state().witness = std::move(witness);
}

void answer(std::string_view function, const CmEvent& event) {
    const auto guard = lock();
    state().answers[std::string(function)] = event;
}

void answer_nothing(std::string_view function) {
    const auto guard = lock();
    state().answers[std::string(function)] = std::nullopt;
}

void raise_cm_event(rdma_cm_id* id, const CmEvent& event) {
    const auto guard = lock();
    raise(id, event);
}

void request_connection(rdma_cm_id* listener, std::string_view private_data) {
    raise_cm_event(listener, {.type = RDMA_CM_EVENT_CONNECT_REQUEST,
                              .private_data = std::string(private_data)});
}

void fail_next(std::string_view function, int error) {
    const auto guard = lock();
    state().failures.emplace_back(function, error);
}

bool all_failed() {
    const auto guard = lock();
    return state().failures.empty();
}

void cancel_failures() {
    const auto guard = lock();
    state().failures.clear();
}

std::size_t live() {
    const auto guard = lock();
    return state().ids.size() + state().channels.size();
}

std::vector<std::string> violations() {
    const auto guard = lock();
    return state().violations;
}

unsigned unacknowledged_events() {
    const auto guard = lock();
    return static_cast<unsigned>(state().taken.size());
}

} // namespace fake_rdmacm
