// SPDX-License-Identifier: BSD-3-Clause
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include <rdmabuf/exporter.hpp>
#include <rdmabuf/topology.hpp>

#include "base/address_space.hpp"

namespace rdmabuf {

MemoryLocation locate_memory(const Allocation& allocation, std::uintptr_t address) {
    if (allocation.kind != MemoryKind::device) {
        return locate_host_memory(address);
    }
    MemoryLocation location{.c2c = allocation.c2c};
    if (allocation.pci_address.empty()) {
        location.reason =
            "the exporter does not report the PCI address of the device that holds "
            "the memory";
        return location;
    }
    location.device = PciAddress::parse(allocation.pci_address);
    if (!location.device) {
        location.reason =
            "the exporter reports \"" + allocation.pci_address + "\", which is not a PCI address";
    }
    return location;
}

MemoryLocation locate_memory(const Allocation& allocation) {
    return locate_memory(allocation, allocation.base);
}

MemoryLocation locate_host_memory(std::uintptr_t address) {
    const std::uintptr_t page = detail::page_size();
    void* pages[] = {reinterpret_cast<void*>(address - address % page)};
    int status = -EFAULT;
    MemoryLocation location;
    // Without a list of target nodes, move_pages(2) moves no page, but returns the NUMA node of
    // each page.
    if (::syscall(SYS_move_pages, 0, 1UL, pages, nullptr, &status, 0) != 0) {
        status = -errno;
    }
    if (status >= 0) {
        location.numa_node = status;
    } else {
        location.reason = "the NUMA node of the memory is not known: move_pages() reports " +
                          std::generic_category().message(-status);
    }
    return location;
}

} // namespace rdmabuf
