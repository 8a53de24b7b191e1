// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <tuple>

#include <rdmabuf/topology.hpp>

namespace rdmabuf {
namespace {

/// Returns the number of leading components that the sysfs paths of two PCI functions have in
/// common. Each component is compared as a whole: "pci0000:00" does not match "pci0000:001".
std::size_t common_ancestors(const PciFunction& one, const PciFunction& other) {
    const auto [end, ignored] = std::mismatch(one.ancestors.begin(), one.ancestors.end(),
                                              other.ancestors.begin(), other.ancestors.end());
    return static_cast<std::size_t>(std::distance(one.ancestors.begin(), end));
}

/// Returns the number of PCI bridges in `function.ancestors`, beginning at the element with the
/// index @p first. The elements before this index are nearer to the root and are not counted.
unsigned bridges(const PciFunction& function, std::size_t first) {
    return static_cast<unsigned>(std::count_if(
        function.ancestors.begin() + static_cast<std::ptrdiff_t>(first), function.ancestors.end(),
        [](const std::string& name) { return PciAddress::parse(name).has_value(); }));
}

/// Returns true if @p name is the sysfs name of a PCI host bridge, for example "pci0000:3a".
bool is_host_bridge(const std::string& name) {
    return name.starts_with("pci") && PciAddress::parse(name.substr(3) + ":00.0").has_value();
}

} // namespace

Path Topology::path(const MemoryLocation& memory, const Nic& nic) const {
    if (!nic.pci) {
        return {.reason = nic.reason.empty() ? nic.name + " is not a PCI device" : nic.reason};
    }
    Path path = path_to(memory, *nic.pci);
    // Data direct is considered only if the device that holds the memory and the data-direct
    // function of the NIC are in the same PCI domain.
    if (nic.data_direct && memory.device &&
        memory.device->domain == nic.data_direct->address.domain) {
        Path direct = path_to(memory, *nic.data_direct);
        if (std::tuple(direct.type, direct.hops) < std::tuple(path.type, path.hops)) {
            path = direct;
            path.data_direct = true;
        }
    }
    if (nic.port_speed && (!path.bandwidth || *nic.port_speed < *path.bandwidth)) {
        path.bandwidth = nic.port_speed;
    }
    return path;
}

Path Topology::path_to(const MemoryLocation& memory, const PciFunction& nic) const {
    if (!memory.device) {
        Path path = path_by_numa(memory.numa_node, nic, PathType::phb);
        if (path.type == PathType::unknown && !memory.reason.empty()) {
            path.reason = memory.reason;
        }
        path.hops = bridges(nic, 0);
        return path;
    }
    const PciFunction* const function = find_pci_function(*memory.device);
    if (function == nullptr) {
        return {.bandwidth = slowest_link(nic, 0),
                .reason = "the device that holds the memory, " + to_string(*memory.device) +
                          ", is not in /sys/bus/pci/devices"};
    }
    Path path = path_between(*function, nic);
    const bool one_node = path.type == PathType::phb || path.type == PathType::node;
    if (memory.c2c && one_node) {
        // The chip-to-chip link connects the GPU to the CPU directly, so the PCI bridges of the GPU
        // are not part of the path.
        path.type = PathType::c2c;
        path.hops = bridges(nic, 0);
    }
    return path;
}

Path Topology::path_between(const PciFunction& memory, const PciFunction& nic) const {
    if (memory.address == nic.address) {
        return {.type = PathType::loc};
    }
    const std::size_t common = common_ancestors(memory, nic);
    const unsigned memory_side = bridges(memory, common);
    const unsigned nic_side = bridges(nic, common);
    const std::string nearest = common != 0 ? nic.ancestors[common - 1] : std::string();
    if (PciAddress::parse(nearest)) {
        // In sysfs, a PCIe switch has one upstream port and several downstream ports, and each port
        // is a bridge. The common ancestor `nearest` is normally the upstream port. If there is
        // more than one bridge between this port and the memory, or between this port and the NIC,
        // the path goes through a second switch.
        return {.type = memory_side <= 1 && nic_side <= 1 ? PathType::pix : PathType::pxb,
                .hops = memory_side + 1 + nic_side,
                .bandwidth = slowest_link(nic, common)};
    }
    if (is_host_bridge(nearest)) {
        return {.type = PathType::phb,
                .hops = memory_side + nic_side,
                .bandwidth = slowest_link(nic, common)};
    }
    Path path = path_by_numa(memory.numa_node, nic, PathType::node);
    path.hops = memory_side + nic_side;
    if (path.type == PathType::unknown && !memory.numa_node) {
        path.reason = "the NUMA node of " + to_string(memory.address) + " is not known";
    }
    return path;
}

Path Topology::path_by_numa(const std::optional<int>& memory, const PciFunction& nic,
                            PathType same_node) const {
    Path path{.bandwidth = slowest_link(nic, 0)};
    if (numa_nodes_.size() == 1) {
        path.type = same_node;
        return path;
    }
    if (!memory || !nic.numa_node) {
        path.reason = memory ? "the NUMA node of " + to_string(nic.address) + " is not known"
                             : "the NUMA node of the memory is not known";
        return path;
    }
    if (*memory == *nic.numa_node) {
        path.type = same_node;
        return path;
    }
    path.type = PathType::sys;
    const auto find = [this](int id) {
        return std::find_if(numa_nodes_.begin(), numa_nodes_.end(),
                            [id](const NumaNode& node) { return node.id == id; });
    };
    const auto from = find(*memory);
    const auto to = find(*nic.numa_node);
    if (from != numa_nodes_.end() && to != numa_nodes_.end() && !from->distances.empty()) {
        path.numa_distance =
            from->distances[static_cast<std::size_t>(std::distance(numa_nodes_.begin(), to))];
    }
    return path;
}

std::optional<double> Topology::slowest_link(const PciFunction& nic, std::size_t common) const {
    std::optional<double> slowest;
    const auto add = [&slowest](const PciFunction& function) {
        if (function.link && (!slowest || function.link->bandwidth() < *slowest)) {
            slowest = function.link->bandwidth();
        }
    };
    add(nic);
    for (std::size_t i = common; i < nic.ancestors.size(); ++i) {
        const auto address = PciAddress::parse(nic.ancestors[i]);
        const PciFunction* const bridge = address ? find_pci_function(*address) : nullptr;
        if (bridge != nullptr) {
            add(*bridge);
        }
    }
    return slowest;
}

} // namespace rdmabuf
