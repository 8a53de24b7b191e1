// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace softverbs {

/// A fault that a test injects: a state change of a port, or the reset of a device.
struct DeviceFault {
    enum class Kind : std::uint8_t { port_down, port_up, flap, reset };
    Kind kind = Kind::reset;
    unsigned device = 0;
    std::uint8_t port = 1;
    /// Time in milliseconds from the call of control::plan() until the fault occurs.
    unsigned delay_ms = 0;
    /// Only for Kind::flap (the port goes down and up repeatedly): duration of each state in
    /// milliseconds.
    unsigned period_ms = 0;
    /// Only for Kind::flap: how many times the port goes down.
    unsigned times = 0;
};

inline constexpr unsigned longest_delay_ms = 3'600'000;
inline constexpr unsigned longest_period_ms = 60'000;
inline constexpr unsigned most_flaps = 1'000'000;

/// Parses the state of a port: "down", "up" or "flap:<n>ms*<times>" (the port goes down and up
/// repeatedly). In the result, the device is 0 and the port is 1. Returns nullopt if the text is
/// invalid.
[[nodiscard]] std::optional<DeviceFault> parse_port_state(std::string_view text);

/// Parses "port[:<device>[/<port>]]=<state>[@<n>ms]" and "device[:<device>]=reset[@<n>ms]". @p what
/// is the part before "=", and @p value is the part after it. Returns nullopt if the text is
/// invalid or does not begin with "port" or "device".
[[nodiscard]] std::optional<DeviceFault> parse_device_fault(std::string_view what,
                                                            std::string_view value);

} // namespace softverbs
