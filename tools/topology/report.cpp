// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <utility>

#include "../doctor/machine.hpp"
#include "../json.hpp"
#include "machine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools::topology {

namespace {

/// Memory for which the NICs are ranked: that of a GPU, or host memory of a NUMA node.
struct Memory {
    std::string name;
    MemoryLocation location;
};

std::vector<Memory> memories(const Topology& machine) {
    std::vector<Memory> all;
    for (const PciFunction* const gpu : gpus(machine)) {
        all.push_back({.name = to_string(gpu->address), .location = {.device = gpu->address}});
    }
    for (const int node : numa_nodes(machine)) {
        all.push_back({.name = fmt::format("NUMA node {}", node), .location = {.numa_node = node}});
    }
    return all;
}

std::string vendor_name(std::uint32_t vendor) {
    switch (vendor) {
        case doctor::nvidia_vendor:
            return "NVIDIA ";
        case doctor::amd_vendor:
            return "AMD ";
        case doctor::intel_vendor:
            return "Intel ";
        case doctor::habana_vendor:
            return "Habana ";
        case doctor::amazon_vendor:
            return "AWS ";
        default:
            return "";
    }
}

const char* type_name(NodeType type) {
    switch (type) {
        case NodeType::host_bridge:
            return "host bridge";
        case NodeType::bridge:
            return "bridge";
        case NodeType::nic:
            return "NIC";
        case NodeType::gpu:
            return "GPU";
        case NodeType::data_direct:
            return "data direct";
    }
    return "";
}

std::string describe_speed(const Nic& nic) {
    if (nic.active == false) {
        return ", no active port";
    }
    return nic.port_speed ? fmt::format(", {:.0f} Gbit/s", *nic.port_speed) : "";
}

std::string describe(const Node& node, const Topology& machine) {
    std::string text = type_name(node.type);
    for (const std::string& name : node.nics) {
        text += " " + name;
        const Nic* const nic = machine.find_nic(name);
        if (node.type == NodeType::nic && nic != nullptr) {
            text += describe_speed(*nic);
        }
    }
    if (node.function == nullptr) {
        return text;
    }
    if (const auto& identity = node.function->identity; identity && node.type == NodeType::gpu) {
        text += fmt::format(", {}{:04x}:{:04x}", vendor_name(identity->vendor), identity->vendor,
                            identity->device);
    }
    if (node.type != NodeType::bridge && node.function->numa_node) {
        text += fmt::format(", NUMA node {}", *node.function->numa_node);
    }
    if (node.function->link) {
        text += fmt::format(", PCIe {} GT/s x{}", node.function->link->transfer_rate,
                            node.function->link->width);
    }
    return text;
}

void add_tree(std::string& out, const std::vector<Node>& nodes, const std::string& prefix,
              const Topology& machine, const TextStyle& style) {
    for (const Node& node : nodes) {
        const bool last = &node == &nodes.back();
        const std::string below = prefix + (last ? "   " : "|  ");
        const std::string rest = below + (node.children.empty() ? "   " : "|  ");
        std::string name = node.name;
        if (node.type == NodeType::gpu || node.type == NodeType::nic) {
            name = paint(style, Colour::good, name);
        }
        out += wrap(style, name + " " + describe(node, machine), prefix + (last ? "`- " : "+- "),
                    rest);
        add_tree(out, node.children, below, machine, style);
    }
}

std::string describe(const RankedNic& nic) {
    std::string text = fmt::format("{}, {}", nic.name, to_string(nic.path.type));
    if (nic.path.data_direct) {
        text += " by data direct";
    }
    text += fmt::format(", {} hop{}", nic.path.hops, nic.path.hops == 1 ? "" : "s");
    if (nic.path.numa_distance) {
        text += fmt::format(", NUMA distance {}", *nic.path.numa_distance);
    }
    if (nic.path.bandwidth) {
        text += fmt::format(", {:.0f} Gbit/s", *nic.path.bandwidth);
    }
    if (!nic.usable) {
        text += ", no active port";
    }
    return nic.path.reason.empty() ? text : text + ": " + nic.path.reason;
}

/// Describes the best NIC, and names the other NICs of the same rank.
std::string describe_best(const std::vector<RankedNic>& ranked) {
    std::vector<std::string> equal;
    for (const RankedNic& nic : ranked) {
        if (nic.rank == ranked.front().rank && nic.name != ranked.front().name) {
            equal.push_back(nic.name);
        }
    }
    const std::string best = describe(ranked.front());
    return equal.empty() ? best : fmt::format("{}; equal: {}", best, fmt::join(equal, ", "));
}

/// Returns the table of path types: a row for each memory and a column for each NIC. If the columns
/// do not fit the width, several tables follow one another.
std::string matrix(const Topology& machine, const TextStyle& style) {
    constexpr std::size_t name_width = 14;
    constexpr std::size_t min_column = 9;
    std::size_t column = min_column;
    for (const Nic& nic : machine.nics()) {
        column = std::max(column, nic.name.size() + 2);
    }
    const std::size_t fitting = std::max<std::size_t>(1, (style.width - name_width) / column);
    std::string out;
    for (std::size_t begin = 0; begin < machine.nics().size(); begin += fitting) {
        const auto nics =
            machine.nics().subspan(begin, std::min(fitting, machine.nics().size() - begin));
        std::string line(name_width, ' ');
        for (const Nic& nic : nics) {
            line += fmt::format("{:>{}}", printable(nic.name), column);
        }
        out += (begin == 0 ? "" : "\n") + line + "\n";
        for (const Memory& memory : memories(machine)) {
            line = fmt::format("{:<{}}", memory.name, name_width);
            for (const Nic& nic : nics) {
                const Path path = machine.path(memory.location, nic);
                line += fmt::format(
                    "{:>{}}",
                    path.type == PathType::unknown
                        ? "?"
                        : std::string(to_string(path.type)) + (path.data_direct ? "*" : ""),
                    column);
            }
            out += line + "\n";
        }
    }
    return out;
}

Json json_of(const PciFunction* function) {
    if (function == nullptr) {
        return {};
    }
    Json json;
    if (const auto& identity = function->identity) {
        json["vendor"] = identity->vendor;
        json["device"] = identity->device;
        json["class"] = identity->class_code;
    }
    json["numa_node"] = or_null(function->numa_node);
    json["link"] = function->link ? Json{{"transfer_rate_GTps", function->link->transfer_rate},
                                         {"width", function->link->width},
                                         {"bandwidth_Gbps", function->link->bandwidth()}}
                                  : Json();
    return json;
}

Json json_of(const std::vector<Node>& nodes) {
    Json list = Json::array();
    for (const Node& node : nodes) {
        Json json;
        json["name"] = node.name;
        json["type"] = type_name(node.type);
        json["nics"] = node.nics;
        json["function"] = json_of(node.function);
        json["children"] = json_of(node.children);
        list.push_back(std::move(json));
    }
    return list;
}

Json json_of(const RankedNic& nic) {
    return {{"nic", nic.name},
            {"rank", nic.rank},
            {"usable", nic.usable},
            {"type", to_string(nic.path.type)},
            {"hops", nic.path.hops},
            {"numa_distance", or_null(nic.path.numa_distance)},
            {"data_direct", nic.path.data_direct},
            {"bandwidth_Gbps", or_null(nic.path.bandwidth)},
            {"reason", or_null(nic.path.reason)}};
}

} // namespace

std::string to_text(const Topology& machine, const TextStyle& style) {
    const auto heading = [&style](const char* text) {
        return paint(style, Colour::heading, text) + "\n";
    };
    std::string out = heading("PCI functions");
    const std::vector<Node> roots = tree(machine);
    if (roots.empty()) {
        out += wrap(style, "no NIC and no GPU on PCI", "  ", "  ");
    }
    for (const Node& root : roots) {
        out += wrap(style, root.name + " " + describe(root, machine), "", "  ");
        add_tree(out, root.children, "", machine, style);
    }
    for (const Nic& nic : machine.nics()) {
        if (!nic.pci) {
            out += wrap(style, fmt::format("{}: {}", nic.name, nic.reason), "", "  ");
        }
    }
    const std::vector<Memory> all = memories(machine);
    if (!machine.nics().empty() && !all.empty()) {
        out += "\n" + heading("Best NIC");
        for (const Memory& memory : all) {
            out += field(style, memory.name, describe_best(machine.nearest(memory.location)));
        }
        out += "\n" + heading("Path types") + matrix(machine, style);
    }
    if (!machine.problems().empty()) {
        out += "\n" + heading("Problems");
        for (const std::string& problem : machine.problems()) {
            out += wrap(style, problem, "  ", "    ");
        }
    }
    return out;
}

std::string to_json(const Topology& machine) {
    Json json;
    json["tree"] = json_of(tree(machine));
    json["nics"] = Json::array();
    for (const Nic& nic : machine.nics()) {
        json["nics"].push_back(
            {{"name", nic.name},
             {"pci_address", nic.pci ? Json(to_string(nic.pci->address)) : Json()},
             {"data_direct", nic.data_direct ? Json(to_string(nic.data_direct->address)) : Json()},
             {"numa_node", nic.pci ? or_null(nic.pci->numa_node) : Json()},
             {"active", or_null(nic.active)},
             {"port_speed_Gbps", or_null(nic.port_speed)},
             {"reason", or_null(nic.reason)}});
    }
    json["memory"] = Json::array();
    for (const Memory& memory : memories(machine)) {
        Json nics = Json::array();
        for (const RankedNic& nic : machine.nearest(memory.location)) {
            nics.push_back(json_of(nic));
        }
        json["memory"].push_back({{"gpu", memory.location.device ? Json(memory.name) : Json()},
                                  {"numa_node", or_null(memory.location.numa_node)},
                                  {"nics", std::move(nics)}});
    }
    json["problems"] = Json::array();
    for (const std::string& problem : machine.problems()) {
        json["problems"].push_back(problem);
    }
    return json.dump();
}

} // namespace rdmabuf::tools::topology
