// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/topology.hpp>

namespace rdmabuf {

/// Returns the location of memory for Topology::nearest(). For device memory it is the PCI address
/// that the exporter reports. For other memory it is the NUMA node of the page at @p address: see
/// locate_host_memory().
[[nodiscard]] RDMABUF_EXPORT MemoryLocation locate_memory(const Allocation& allocation,
                                                          std::uintptr_t address);
/// Returns the location of the first byte of the allocation.
[[nodiscard]] inline MemoryLocation locate_memory(const Allocation& allocation) {
    return locate_memory(allocation, allocation.base);
}

/// Returns the NUMA node of the host page that contains @p address (move_pages(2)). The node is
/// unknown, and MemoryLocation::reason is set, if the page is not allocated yet, the memory is not
/// host memory, or the system call is forbidden (containers without CAP_SYS_NICE).
[[nodiscard]] RDMABUF_EXPORT MemoryLocation locate_host_memory(std::uintptr_t address);

} // namespace rdmabuf
