// SPDX-License-Identifier: BSD-3-Clause
//
// Prints the NICs of this machine, ordered by their distance to a buffer:
//
//   09_nearest_nics            a buffer in host memory
//   09_nearest_nics cuda       a buffer of the allocator "cuda"
//   09_nearest_nics 3b:00.0    memory of the PCI device at that address
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/topology.hpp>

namespace {

rdmabuf::MemoryLocation locate(std::string_view argument) {
    if (argument.empty()) {
        // The kernel chooses the NUMA node of a page when the page is first written.
        const std::vector<std::byte> memory(1 << 20, std::byte{1});
        return rdmabuf::locate_host_memory(reinterpret_cast<std::uintptr_t>(memory.data()));
    }
    // lspci omits the PCI domain 0000, so the argument is also tried with this domain.
    for (const std::string& text : {std::string(argument), "0000:" + std::string(argument)}) {
        if (const auto address = rdmabuf::PciAddress::parse(text)) {
            return {.device = address};
        }
    }
    const rdmabuf::Resolver resolver = rdmabuf::Resolver::system();
    const rdmabuf::Buffer buffer = resolver.allocator(argument)->allocate(1 << 20);
    return rdmabuf::locate_memory(resolver.find(buffer.address()).allocation, buffer.address());
}

void print_location(const rdmabuf::MemoryLocation& memory) {
    if (memory.device) {
        std::printf("memory of %s%s\n", to_string(*memory.device).c_str(),
                    memory.c2c ? ", with a chip-to-chip link to its CPU" : "");
    } else if (memory.numa_node) {
        std::printf("host memory of NUMA node %d\n", *memory.numa_node);
    } else {
        std::printf("memory at an unknown place: %s\n", memory.reason.c_str());
    }
}

void print(const rdmabuf::RankedNic& nic) {
    std::printf("%2u. %-12s %-8s %u bridges", nic.rank + 1, nic.name.c_str(),
                to_string(nic.path.type), nic.path.hops);
    if (nic.path.bandwidth) {
        std::printf(", %.0f Gbit/s", *nic.path.bandwidth);
    }
    std::printf("%s%s%s%s\n", nic.path.data_direct ? ", by data direct" : "",
                nic.usable ? "" : ", no active port", nic.path.reason.empty() ? "" : ": ",
                nic.path.reason.c_str());
}

} // namespace

int main(int argc, char** argv) try {
    rdmabuf::Topology topology = rdmabuf::Topology::read();
    // The driver reports the data-direct function of a NIC only if the device is open.
    for (const rdmabuf::Device& device : rdmabuf::DeviceList()) {
        if (device.driver() == "mlx5_core") {
            topology.query_data_direct(rdmabuf::Context(device));
        }
    }
    const rdmabuf::MemoryLocation memory = locate(argc > 1 ? argv[1] : "");
    print_location(memory);
    for (const rdmabuf::RankedNic& nic : topology.nearest(memory)) {
        print(nic);
    }
    for (const std::string& problem : topology.problems()) {
        std::fprintf(stderr, "%s\n", problem.c_str());
    }
    return topology.nics().empty() ? 1 : 0;
} catch (const rdmabuf::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
