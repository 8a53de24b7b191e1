// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/topology.hpp>

namespace rdmabuf {

/// Where the memory of an allocation is: the input of Topology::nearest(). For memory of a device,
/// the PCI address that the exporter reports; for other memory, the NUMA node of the page at
/// @p address, as locate_host_memory() finds it.
[[nodiscard]] RDMABUF_EXPORT MemoryLocation locate_memory(const Allocation& allocation,
                                                          std::uintptr_t address);
/// As above, for the first byte of the allocation.
[[nodiscard]] inline MemoryLocation locate_memory(const Allocation& allocation) {
    return locate_memory(allocation, allocation.base);
}

/// The NUMA node of the host page that holds @p address (move_pages(2)). The node is unknown, with
/// a reason, for a page that no write has allocated yet, for memory that is not the CPU's, and
/// where the system call is forbidden, as in containers without CAP_SYS_NICE.
[[nodiscard]] RDMABUF_EXPORT MemoryLocation locate_host_memory(std::uintptr_t address);

} // namespace rdmabuf
