// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>

// What the fake driver of Level Zero has in addition to fake_driver.hpp. As Intel's driver does, it
// keeps one descriptor for each exported allocation and returns this descriptor to all callers.
namespace fake_level_zero {

/// Attributes of a device.
enum Attribute : int {
    /// ze_device_type_t; 1 is a GPU.
    device_type = 1,
    /// Mask of ze_external_memory_type_flags_t that the device exports; 2 is a dma-buf.
    export_types = 2,
    /// The ze_memory_type_t that the driver reports for host memory; 1 is ZE_MEMORY_TYPE_HOST.
    host_type = 3,
};

/// Returns the descriptor that the driver keeps for an allocation, -1 if there is none.
int kept_descriptor(std::uint64_t address);
/// Returns whether the program closed a descriptor that the driver keeps.
bool kept_descriptor_was_closed();
/// Returns the descriptor of the block of an allocation and keeps it. The machine is locked.
int keep_descriptor(std::uint64_t address);

} // namespace fake_level_zero
