// SPDX-License-Identifier: BSD-3-Clause
#include "control/planned_faults.hpp"

#include <softverbs/softverbs.h>

#include <algorithm>

#include "fabric/clock.hpp"

namespace softverbs::control {

namespace {

constexpr std::uint64_t ns_per_ms = 1'000'000;

} // namespace

void change_state(const PlannedFault& planned) {
    const DeviceFault& fault = planned.fault;
    ibv_port_state state = IBV_PORT_DOWN;
    switch (fault.kind) {
        case DeviceFault::Kind::reset:
            softverbs_reset_device(fault.device);
            return;
        case DeviceFault::Kind::flap:
            // Kind::flap consists of pairs of state changes: down, then up. Before each change to
            // "down", changes_left is even.
            state = planned.changes_left % 2 == 0 ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
            break;
        case DeviceFault::Kind::port_up:
            state = IBV_PORT_ACTIVE;
            break;
        case DeviceFault::Kind::port_down:
            break;
    }
    softverbs_set_port_state(fault.device, fault.port, state);
}

void PlannedFaults::add(std::span<const DeviceFault> faults, bool from_list) {
    planned_.reserve(planned_.size() + faults.size());
    for (const DeviceFault& fault : faults) {
        const unsigned changes = fault.kind == DeviceFault::Kind::flap ? 2 * fault.times : 1;
        planned_.push_back(
            {fault, changes, fabric::now_ns() + fault.delay_ms * ns_per_ms, from_list});
    }
}

void PlannedFaults::remove_list() {
    std::erase_if(planned_, [](const PlannedFault& planned) { return planned.from_list; });
}

std::optional<PlannedFault> PlannedFaults::take_due() noexcept {
    const auto next = std::ranges::min_element(planned_, {}, &PlannedFault::due);
    if (next == planned_.end() || next->due > fabric::now_ns()) {
        return std::nullopt;
    }
    const PlannedFault due = *next;
    next->due += next->fault.period_ms * ns_per_ms;
    if (--next->changes_left == 0) {
        planned_.erase(next);
    }
    return due;
}

std::uint64_t PlannedFaults::next_change() const {
    return planned_.empty() ? 0 : std::ranges::min_element(planned_, {}, &PlannedFault::due)->due;
}

} // namespace softverbs::control
