// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include "engine/implementation.hpp"
#include "fabric/report.hpp"
#include "objects/process.hpp"

namespace softverbs {

namespace {

constexpr unsigned budget = 64;
/// Time in nanoseconds for which the agent (background) thread continues to poll after it has
/// processed a packet, before it sleeps. It is about the time that waking a sleeping thread takes.
constexpr std::uint64_t spin_ns = 20'000;
/// Length in nanoseconds of the first sleep of the agent (background) thread while the program
/// itself polls completion queues. After each sleep, the agent thread checks whether the program
/// still polls. Each further sleep is twice as long, up to longest_nap_ns.
constexpr std::uint64_t shortest_nap_ns = 100'000;
constexpr std::uint64_t longest_nap_ns = 1'000'000;

} // namespace

unsigned Engine::Implementation::work() {
    unsigned done = 0;
    copying = false;
    copy_budget = copy_step_bytes;
    if (node != nullptr) {
        done = node->progress(*this, budget);
    }
    continue_copies();
    drain();
    return done;
}

unsigned Engine::Implementation::run_agent_once(std::uint64_t now) {
    if (std::exchange(runs_all, false)) {
        run_all();
    }
    serviced = node != nullptr && node->service(*this);
    const unsigned done = work();
    run_timers(now);
    // Send the delayed ACKs, but not while planned faults (errors that the test configuration
    // injects) affect packets. Such a fault selects the N-th packet that this process sends, and
    // these ACKs would be counted too.
    if (!ack_pending.empty() && !process().faults.affects_packets()) {
        acknowledge_all();
    }
    return done;
}

bool Engine::Implementation::has_work(std::uint64_t now) const noexcept {
    const std::uint64_t deadline = next_deadline();
    return runs_all || local_first != local_end || !set_asides.empty() ||
           (!ack_pending.empty() && !process().faults.affects_packets()) ||
           (deadline != 0 && deadline <= now);
}

bool Engine::step() noexcept {
    if (!fabric::clock_is_stopped()) {
        return false; // the agent thread does the work
    }
    Implementation& engine = *implementation_;
    const std::uint64_t now = fabric::now_ns();
    const bool has_work = engine.has_work(now);
    try {
        return engine.run_agent_once(now) != 0 || has_work || engine.serviced || engine.copying;
    } catch (const std::exception&) {
        engine.runs_all = true; // the next step calls run_all()
        return true;
    }
}

std::uint64_t Engine::next_deadline() const noexcept {
    return implementation_->next_deadline();
}

void Engine::clock_runs() noexcept {
    if (fabric::Node* const node = implementation_->node.get(); node != nullptr) {
        node->clock_runs();
        node->wake();
    }
}

void Engine::Implementation::run_later() noexcept {
    runs_all = true;
    if (agent_state != Agent::awake && node != nullptr) {
        node->wake();
    }
}

void Engine::Implementation::wake_agent_before(std::uint64_t deadline) {
    if (agent_state != Agent::awake && (agent_wakes_at == 0 || deadline < agent_wakes_at) &&
        node != nullptr) {
        agent_wakes_at = deadline;
        node->wake();
    }
}

void Engine::Implementation::agent() {
    std::unique_lock lock(process().lock);
    std::uint64_t polls_seen = polls;
    std::uint64_t nap_ns = shortest_nap_ns;
    std::uint64_t idle_since = fabric::now_ns();
    bool reported = false;
    while (!stopping) {
        if (fabric::clock_is_stopped()) [[unlikely]] {
            fabric::Node& here = *node;
            lock.unlock();
            here.wait_for_wake();
            lock.lock();
            idle_since = fabric::now_ns();
            continue;
        }
        const std::uint64_t now = fabric::now_ns();
        unsigned done = 0;
        try {
            done = run_agent_once(now);
        } catch (const std::exception&) {
            // Memory was exhausted during the processing of a packet. This packet may be lost, as
            // on a wire. A reliable requester then sends its request again.
            if (!std::exchange(reported, true)) {
                fabric::report("memory is exhausted; raise ulimit -v or the memory limit");
            }
            runs_all = true;
            lock.unlock();
            fabric::pause_ns(1'000'000);
            lock.lock();
            continue;
        }
        if (done > 0) {
            idle_since = now;
        }
        const bool program_polls = polls != polls_seen && !program_sleeps;
        polls_seen = polls;
        program_sleeps = false;
        if (!program_polls && copying) {
            idle_since = now;
            process().lock.pass();
            continue;
        }
        if (!program_polls && now - idle_since < spin_ns) {
            lock.unlock();
            std::this_thread::yield();
            lock.lock();
            continue;
        }
        const std::uint64_t deadline = next_deadline();
        std::int64_t wait_ns = -1;
        if (program_polls) {
            wait_ns = static_cast<std::int64_t>(nap_ns);
            nap_ns = std::min(2 * nap_ns, longest_nap_ns);
        } else {
            nap_ns = shortest_nap_ns;
            if (!node->arm()) {
                idle_since = now;
                continue;
            }
        }
        agent_state = program_polls ? Agent::napping : Agent::asleep;
        if (deadline != 0) {
            const std::int64_t left =
                deadline > now ? static_cast<std::int64_t>(deadline - now) : std::int64_t{0};
            wait_ns = wait_ns < 0 ? left : std::min(wait_ns, left);
        }
        agent_wakes_at = wait_ns < 0 ? 0 : now + static_cast<std::uint64_t>(wait_ns);
        fabric::Node& here = *node;
        lock.unlock();
        here.wait(wait_ns);
        lock.lock();
        if (agent_state == Agent::asleep) {
            node->disarm();
        }
        agent_state = Agent::awake;
    }
}

} // namespace softverbs
