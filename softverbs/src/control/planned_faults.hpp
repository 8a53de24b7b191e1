// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "control/device_faults.hpp"

namespace softverbs::control {

/// A planned fault that a test has injected: the state changes of a port, or the reset of a device.
struct PlannedFault {
    DeviceFault fault;
    /// Number of state changes of the port, or resets of the device, that have not occurred yet.
    unsigned changes_left = 0;
    /// Time of the next state change of the port, or of the reset of the device, in nanoseconds.
    std::uint64_t due = 0;
    /// True if control::plan() has added the fault, and false if control::flap_port() has added it.
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
    /// Removes the planned faults that control::plan() has added.
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

} // namespace softverbs::control
