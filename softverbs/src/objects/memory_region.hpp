// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "objects/memory.hpp"

namespace softverbs {

inline constexpr unsigned remote_access =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// Remote write and remote atomic access require local write access, as in the kernel's
/// ib_check_mr_access().
[[nodiscard]] constexpr bool is_consistent(unsigned access) noexcept {
    return (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) == 0 ||
           (access & IBV_ACCESS_LOCAL_WRITE) != 0;
}
/// Whether the range of @p length bytes at @p start is within the first @p size bytes. Cannot
/// overflow.
[[nodiscard]] constexpr bool lies_within(std::uint64_t start, std::uint64_t length,
                                         std::uint64_t size) noexcept {
    return start <= size && length <= size - start;
}

/// Allocates the key of a new region and adds the region to all counters. Takes ownership. Null and
/// ENOMEM on failure; the region's mapping is then released.
[[nodiscard]] Mr* enlist(std::unique_ptr<Mr> mr, Pd& pd);
/// Removes a deregistered region from its device memory, and frees that memory if it has no other
/// user.
void end_region(DeviceMemory& memory) noexcept;

/// Faults in the pages of a range, as pinning or on-demand paging would. Returns false if a page is
/// not mapped, does not permit this access, or belongs to a device mapping.
[[nodiscard]] bool populate(const void* address, std::size_t length, bool write) noexcept;
[[nodiscard]] std::uint64_t page_size() noexcept;

} // namespace softverbs
