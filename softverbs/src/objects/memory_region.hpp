// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "objects/memory.hpp"

namespace softverbs {

inline constexpr unsigned remote_access =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// Peers write only where the device itself may: ib_check_mr_access() of the kernel.
[[nodiscard]] constexpr bool is_consistent(unsigned access) noexcept {
    return (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) == 0 ||
           (access & IBV_ACCESS_LOCAL_WRITE) != 0;
}
/// Whether @p length units from @p start on lie within @p size.
[[nodiscard]] constexpr bool lies_within(std::uint64_t start, std::uint64_t length,
                                         std::uint64_t size) noexcept {
    return start <= size && length <= size - start;
}

/// Gives a region that is complete otherwise its key, and counts it; null and ENOMEM. Its mapping
/// is released when that fails.
[[nodiscard]] Mr* enlist(std::unique_ptr<Mr> mr, Pd& pd);
/// Lets go of device memory for a region that is gone.
void end_region(DeviceMemory& memory) noexcept;

/// Brings the pages of a range in, as the device would to pin them or on demand. False: some are
/// not mapped, or cannot be used in this way, or are special mappings of a device.
[[nodiscard]] bool populate(const void* address, std::size_t length, bool write) noexcept;
[[nodiscard]] std::uint64_t page_size() noexcept;

} // namespace softverbs
