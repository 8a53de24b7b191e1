// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <rdmabuf/topology.hpp>

#include "../text.hpp"

namespace rdmabuf::tools::topology {

enum class NodeType : std::uint8_t { host_bridge, bridge, nic, gpu, data_direct };

/// A PCI function, or a host bridge, in the tree of a machine.
struct Node {
    /// The name of the directory in /sys/devices: "pci0000:3a" or "0000:3b:00.0".
    std::string name;
    NodeType type = NodeType::bridge;
    /// The names of the RDMA devices of this PCI function, for NodeType::nic and
    /// NodeType::data_direct.
    std::vector<std::string> nics = {};
    /// Null for a host bridge, and for a bridge that the topology does not list.
    const PciFunction* function = nullptr;
    std::vector<Node> children = {};
};

/// Returns true for GPUs and other accelerators, but not for the display controller of a BMC.
[[nodiscard]] bool is_gpu(const PciFunction& function) noexcept;

/// Returns the GPUs and accelerators, ordered by address.
[[nodiscard]] std::vector<const PciFunction*> gpus(const Topology& machine);

/// Returns the NUMA nodes of the NICs and GPUs, in increasing order.
[[nodiscard]] std::vector<int> numa_nodes(const Topology& machine);

/// Returns the host bridges above NICs, GPUs and data-direct functions. Below them are these
/// functions and the PCI bridges that lead to them. The pointers in the result are valid as long as
/// @p machine exists.
[[nodiscard]] std::vector<Node> tree(const Topology& machine);

[[nodiscard]] std::string to_text(const Topology& machine, const TextStyle& style);
/// Returns one JSON object and a newline.
[[nodiscard]] std::string to_json(const Topology& machine);

} // namespace rdmabuf::tools::topology
