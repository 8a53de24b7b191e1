// SPDX-License-Identifier: BSD-3-Clause
#include "control/device_faults.hpp"

#include <softverbs/softverbs.h>

#include <algorithm>
#include <limits>

#include "control/text.hpp"
#include "fabric/clock.hpp"

namespace softverbs {

namespace {

/// Parses the part of a port state after "flap:", such as "100ms*5" (period and number of times).
/// Returns nullopt if the text is invalid.
std::optional<DeviceFault> parse_flap(std::string_view text) {
    const auto period = parse_milliseconds(take_until(text, '*'));
    const auto times = parse_number(text);
    if (!period || !times || !is_valid_flap(*period, *times)) {
        return std::nullopt;
    }
    DeviceFault fault;
    fault.kind = DeviceFault::Kind::flap;
    fault.period_ms = *period;
    fault.times = *times;
    return fault;
}

/// Parses "<device>[/<port>]" and stores both in @p fault; the default port is 1. Does not change
/// @p fault if the text is empty. Returns false if the text is invalid.
bool parse_target(std::string_view text, DeviceFault& fault) {
    if (text.empty()) {
        return true;
    }
    const bool has_port = text.find('/') != std::string_view::npos;
    const auto device = parse_number(take_until(text, '/'));
    const auto port = has_port ? parse_number(text) : std::optional(1U);
    if (!device || !port || *port == 0 || *port > std::numeric_limits<std::uint8_t>::max()) {
        return false;
    }
    fault.device = *device;
    fault.port = static_cast<std::uint8_t>(*port);
    return true;
}

} // namespace

std::optional<DeviceFault> parse_port_state(std::string_view text) {
    DeviceFault fault;
    if (text == "down" || text == "up") {
        fault.kind = text == "up" ? DeviceFault::Kind::port_up : DeviceFault::Kind::port_down;
        return fault;
    }
    constexpr std::string_view flap = "flap:";
    return text.starts_with(flap) ? parse_flap(text.substr(flap.size())) : std::nullopt;
}

std::optional<DeviceFault> parse_device_fault(std::string_view what, std::string_view value) {
    const bool has_delay = value.find('@') != std::string_view::npos;
    const std::string_view change = take_until(value, '@');
    const auto delay = has_delay ? parse_milliseconds(value) : std::optional(0U);
    const std::string_view kind = take_until(what, ':');
    std::optional<DeviceFault> fault;
    if (kind == "port") {
        fault = parse_port_state(change);
    } else if (kind == "device" && change == "reset" && what.find('/') == std::string_view::npos) {
        fault.emplace();
    }
    if (!fault || !delay || *delay > longest_delay_ms || !parse_target(what, *fault)) {
        return std::nullopt;
    }
    fault->delay_ms = *delay;
    return fault;
}

namespace {

constexpr std::uint64_t nanoseconds_per_ms = 1'000'000;

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
            {fault, changes, fabric::now_ns() + fault.delay_ms * nanoseconds_per_ms, from_list});
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
    next->due += next->fault.period_ms * nanoseconds_per_ms;
    if (--next->changes_left == 0) {
        planned_.erase(next);
    }
    return due;
}

std::uint64_t PlannedFaults::next_change() const {
    return planned_.empty() ? 0 : std::ranges::min_element(planned_, {}, &PlannedFault::due)->due;
}

} // namespace softverbs
