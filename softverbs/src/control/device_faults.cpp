// SPDX-License-Identifier: BSD-3-Clause
#include "control/device_faults.hpp"

#include <limits>

#include "control/text.hpp"

namespace softverbs {

namespace {

/// Parses the part of a port state after "flap:", such as "100ms*5" (period and number of times).
/// Returns nullopt if the text is invalid.
std::optional<DeviceFault> parse_flap(std::string_view text) {
    const auto period = parse_milliseconds(take_until(text, '*'));
    const auto times = parse_number(text);
    if (!period || *period == 0 || *period > longest_period_ms || !times || *times == 0 ||
        *times > most_flaps) {
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

} // namespace softverbs
