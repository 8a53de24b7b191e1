// SPDX-License-Identifier: BSD-3-Clause
#include "machine.hpp"

#include <algorithm>
#include <set>

#include "../doctor/machine.hpp"

namespace rdmabuf::tools::topology {

namespace {

constexpr std::uint32_t vendor_aspeed = 0x1a03;
constexpr std::uint32_t vendor_matrox = 0x102b;
constexpr std::uint32_t base_class_display = 0x03;
constexpr std::uint32_t base_class_accelerator = 0x12;
constexpr std::uint32_t class_other_peripheral = 0x0880;

Node& child(std::vector<Node>& nodes, const std::string& name) {
    const auto found = std::ranges::find(nodes, name, &Node::name);
    return found != nodes.end() ? *found : nodes.emplace_back(Node{.name = name});
}

/// Adds a PCI function to the tree, and its ancestors unless the tree contains them already.
/// @return the node of the PCI function
Node& add_path(std::vector<Node>& roots, const Topology& machine, const PciFunction& function) {
    std::vector<Node>* nodes = &roots;
    for (const std::string& name : function.ancestors) {
        Node& node = child(*nodes, name);
        if (nodes == &roots) {
            node.type = NodeType::host_bridge;
        } else if (const auto address = PciAddress::parse(name)) {
            node.function = machine.find_pci_function(*address);
        }
        nodes = &node.children;
    }
    Node& node = child(*nodes, to_string(function.address));
    node.function = &function;
    return node;
}

void add_nic(std::vector<Node>& roots, const Topology& machine, const PciFunction& function,
             NodeType type, const std::string& name) {
    // The tree points to the function in Topology::pci_functions() and not to the copy in
    // rdmabuf::Nic, because the copy can be replaced while the topology exists.
    const PciFunction* const own = machine.find_pci_function(function.address);
    Node& node = add_path(roots, machine, own != nullptr ? *own : function);
    node.type = type;
    node.nics.push_back(name);
}

void sort(std::vector<Node>& nodes) {
    std::ranges::sort(nodes, {}, &Node::name);
    for (Node& node : nodes) {
        sort(node.children);
    }
}

} // namespace

bool is_gpu(const PciFunction& function) noexcept {
    if (!function.identity) {
        return false;
    }
    const auto& [vendor, device, code] = *function.identity;
    if (vendor == vendor_aspeed || vendor == vendor_matrox) {
        return false;
    }
    // Inferentia and Trainium have the class "other system peripheral".
    const bool neuron = vendor == doctor::amazon_vendor && code >> 8U == class_other_peripheral;
    return code >> 16U == base_class_display || code >> 16U == base_class_accelerator || neuron;
}

std::vector<const PciFunction*> gpus(const Topology& machine) {
    std::vector<const PciFunction*> found;
    for (const PciFunction& function : machine.pci_functions()) {
        if (is_gpu(function)) {
            found.push_back(&function);
        }
    }
    return found;
}

std::vector<int> numa_nodes(const Topology& machine) {
    std::set<int> nodes;
    const auto add = [&nodes](const PciFunction& function) {
        if (function.numa_node) {
            nodes.insert(*function.numa_node);
        }
    };
    for (const PciFunction* const gpu : gpus(machine)) {
        add(*gpu);
    }
    for (const Nic& nic : machine.nics()) {
        if (nic.pci) {
            add(*nic.pci);
        }
    }
    return {nodes.begin(), nodes.end()};
}

std::vector<Node> tree(const Topology& machine) {
    std::vector<Node> roots;
    for (const PciFunction* const gpu : gpus(machine)) {
        add_path(roots, machine, *gpu).type = NodeType::gpu;
    }
    for (const Nic& nic : machine.nics()) {
        if (nic.pci) {
            add_nic(roots, machine, *nic.pci, NodeType::nic, nic.name);
        }
        if (nic.data_direct) {
            add_nic(roots, machine, *nic.data_direct, NodeType::data_direct, nic.name);
        }
    }
    sort(roots);
    return roots;
}

} // namespace rdmabuf::tools::topology
