// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "control/device_faults.hpp"

namespace softverbs::control {

/// A planned fault of a port or a device.
struct PlannedFault {
    DeviceFault fault;
    /// Number of state changes that have not occurred yet.
    unsigned changes_left = 0;
    /// Time of the next state change.
    std::chrono::steady_clock::time_point due;
    /// True if plan() has added the fault, and false if flap_port() has added it.
    bool from_list = false;
};

/// Executes the next state change of a fault. Does nothing if the device was removed after the
/// fault was planned. The caller must not hold Process::lock.
void change_state(const PlannedFault& planned);

/// The planned faults that have not occurred yet. The caller holds the lock of the control thread.
class PlannedFaults {
  public:
    /// Adds faults, whose delays begin now. If add() throws std::bad_alloc, no fault was added.
    void add(std::span<const DeviceFault> faults, bool from_list);
    /// Removes the faults that plan() has added.
    void remove_list();
    void clear() noexcept { planned_.clear(); }
    /// Removes the state changes that are due, and returns them for change_state().
    [[nodiscard]] std::vector<PlannedFault> take_due();
    /// Returns the time in milliseconds until the next state change, or -1 if none is planned.
    [[nodiscard]] int time_to_next_change() const;

  private:
    std::vector<PlannedFault> planned_;
};

} // namespace softverbs::control
