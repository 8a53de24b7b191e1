// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "objects/memory.hpp"

namespace softverbs {

inline constexpr unsigned remote_access =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// Returns whether the access flags of a region are consistent: remote write and remote atomic
/// access require local write access, as in the kernel's ib_check_mr_access().
[[nodiscard]] constexpr bool is_consistent(unsigned access) noexcept {
    return (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) == 0 ||
           (access & IBV_ACCESS_LOCAL_WRITE) != 0;
}
/// Returns whether @p length bytes at offset @p start are within the first @p size bytes. Handles
/// overflow correctly.
[[nodiscard]] constexpr bool lies_within(std::uint64_t start, std::uint64_t length,
                                         std::uint64_t size) noexcept {
    return start <= size && length <= size - start;
}

/// Takes ownership of a new region, allocates its key, and adds one to the number of users of its
/// protection domain. On failure, returns null, sets errno to ENOMEM, and releases the mapping of
/// the region.
[[nodiscard]] Mr* enlist(std::unique_ptr<Mr> mr, Pd& pd);
/// Subtracts one from the regions of the device memory, and frees the memory if no ibv_dm and no
/// other region uses it. Called after a region of device memory was deregistered.
void end_region(DeviceMemory& memory) noexcept;

/// Faults in the pages of a range, as a NIC's driver does when it pins memory. Returns false if a
/// page is not mapped, does not permit the access, or belongs to a device. With kernels before
/// Linux 5.14, only checks that all pages are mapped.
/// @param locked  whether the caller holds Process::lock. If false, calls the madvise() of the C
///                library, which a program may intercept in order to call verbs
[[nodiscard]] bool populate(const void* address, std::size_t length, bool write,
                            bool locked) noexcept;
[[nodiscard]] std::uint64_t page_size() noexcept;

} // namespace softverbs
