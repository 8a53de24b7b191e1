// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

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

[[nodiscard]] constexpr bool is_valid_flap(unsigned period_ms, unsigned times) noexcept {
    return period_ms >= 1 && period_ms <= longest_period_ms && times >= 1 && times <= most_flaps;
}

/// Parses the state of a port: "down", "up" or "flap:<n>ms*<times>" (the port goes down and up
/// repeatedly). In the result, the device is 0 and the port is 1. Returns nullopt if the text is
/// invalid.
[[nodiscard]] std::optional<DeviceFault> parse_port_state(std::string_view text);

/// Parses "port[:<device>[/<port>]]=<state>[@<n>ms]" and "device[:<device>]=reset[@<n>ms]". @p what
/// is the part before "=", and @p value is the part after it. Returns nullopt if the text is
/// invalid or does not begin with "port" or "device".
[[nodiscard]] std::optional<DeviceFault> parse_device_fault(std::string_view what,
                                                            std::string_view value);

/// A planned fault that a test has injected: the state changes of a port, or the reset of a device.
struct PlannedFault {
    DeviceFault fault;
    /// Number of state changes of the port, or resets of the device, that have not occurred yet.
    unsigned changes_left = 0;
    /// Time of the next state change of the port, or of the reset of the device, in nanoseconds.
    std::uint64_t due = 0;
    /// Whether control::cancel_plan() cancels the fault.
    bool from_list = false;
};

/// Changes the state of a port or resets a device, as @p planned specifies. Does nothing if the
/// device was removed after the fault was planned. The caller must not hold Process::lock.
void change_state(const PlannedFault& planned);

/// The planned state changes of ports and resets of devices that have not occurred yet. The caller
/// must hold the lock of the control thread.
class PlannedFaults {
  public:
    /// Adds planned faults, whose delays (DeviceFault::delay_ms) begin now. If add() throws
    /// std::bad_alloc, no fault was added.
    void add(std::span<const DeviceFault> faults, bool from_list);
    /// Removes the planned faults for which PlannedFault::from_list is true.
    void remove_list();
    void clear() noexcept { planned_.clear(); }
    /// Removes the earliest state change or reset, if it is due. Returns it; the caller must then
    /// call change_state(). Allocates no memory, because a failed allocation would lose the change.
    [[nodiscard]] std::optional<PlannedFault> take_due() noexcept;
    /// Returns the time of the next state change or reset in nanoseconds, or 0 if none is planned.
    [[nodiscard]] std::uint64_t next_change() const;

  private:
    std::vector<PlannedFault> planned_;
};

} // namespace softverbs
