// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/topology.hpp>

namespace rdmabuf {

/// Returns the location of the byte at @p address, for Topology::nearest(). For device memory, the
/// location is the PCI address that the exporter reports. For other memory, the location is the
/// NUMA node of the page: see locate_host_memory().
[[nodiscard]] RDMABUF_EXPORT MemoryLocation locate_memory(const Allocation& allocation,
                                                          std::uintptr_t address);
/// This overload returns the location of the first byte of @p allocation.
[[nodiscard]] inline MemoryLocation locate_memory(const Allocation& allocation) {
    return locate_memory(allocation, allocation.base);
}

/// Returns the NUMA node of the host page that contains @p address. The node is unknown if the page
/// is not allocated yet, if the memory is not host memory, or if a container forbids move_pages(2)
/// (no CAP_SYS_NICE). MemoryLocation::reason then contains the cause.
[[nodiscard]] RDMABUF_EXPORT MemoryLocation locate_host_memory(std::uintptr_t address);

} // namespace rdmabuf
