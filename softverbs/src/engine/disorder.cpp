// SPDX-License-Identifier: BSD-3-Clause
#include "control/disorder.hpp"

#include <algorithm>
#include <utility>

#include "engine/implementation.hpp"
#include "objects/process.hpp"

// Implements the test setting SOFTVERBS_DISORDER, which delays packets and the data of RDMA writes.
// The requests of a queue pair stay in order, and so do its responses. But requests may be
// reordered relative to responses and to packets of other queue pairs, and written data becomes
// visible late.

namespace softverbs {

namespace {

/// Maximum number of data bytes of the received RDMA writes that SOFTVERBS_DISORDER (a test
/// setting) delays. If the next write would exceed this limit, all delayed writes are executed
/// immediately.
constexpr std::size_t most_held_bytes = std::size_t{1} << 20U;

} // namespace

std::uint64_t Engine::Implementation::late_until(fabric::Lane lane, std::uint32_t source) {
    Disorder& disorder = process().disorder;
    const bool wanted = lane == fabric::Lane::responses ? disorder.acks() : disorder.qps();
    std::uint64_t due = 0;
    if (const std::uint64_t delay = wanted ? disorder.delay_ns() : 0; delay != 0) {
        due = fabric::now_ns() + delay;
    }
    for (const Delayed& late : delayed) {
        if (late.lane == lane && late.source == source) {
            due = std::max(due, late.due); // not before earlier packets
        }
    }
    return due;
}

void Engine::Implementation::hold_write(const Window& window, std::uint64_t offset,
                                        std::span<const std::byte> bytes) {
    if (held_bytes + bytes.size() > most_held_bytes) {
        release_writes();
    }
    held_bytes += bytes.size();
    held_writes.push_back({fabric::now_ns() + 1'000'000 + process().disorder.delay_ns(),
                           window,
                           offset,
                           {bytes.begin(), bytes.end()}});
    wake_agent_before(held_writes.back().due);
}

void Engine::Implementation::release_held_writes() {
    std::vector<HeldWrite> released;
    std::swap(released, held_writes);
    held_bytes = 0;
    for (const HeldWrite& held : released) {
        EntryList target;
        target.open(held.window, true);
        static_cast<void>(
            target.put(held.offset, held.bytes)); // fails only if the CUDA driver cannot copy
    }
}

} // namespace softverbs
