// SPDX-License-Identifier: BSD-3-Clause
#include "device/topology_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "device/sysfs.hpp"

namespace rdmabuf::detail {
namespace {

std::string entry(std::string directory, std::string_view name) {
    directory.append("/").append(name);
    return directory;
}

/// Parses @p text as a number. Returns std::nullopt if @p text is empty, contains any other
/// characters, or if the number does not fit into Number.
template <class Number>
std::optional<Number> number(std::string_view text, int base = 10) {
    Number value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                    : std::nullopt;
}

/// Parses a hexadecimal number with the prefix 0x, for example "0x10de".
std::optional<std::uint32_t> parse_hexadecimal(std::string_view text) {
    return text.starts_with("0x") ? number<std::uint32_t>(text.substr(2), 16) : std::nullopt;
}

/// Returns the positive number before @p unit, for example 16 from "16.0 GT/s PCIe" or 400 from
/// "400 Gb/sec (4X NDR)"; std::nullopt if there is no such number. The kernel writes at most one
/// digit after the point. This function does not use strtod(3), which depends on the locale, nor
/// std::from_chars(), which reads a double only in libstdc++ 11 and newer.
std::optional<double> number_before(std::string_view text, std::string_view unit) {
    const std::size_t end = text.find(unit);
    if (end == std::string_view::npos) {
        return std::nullopt;
    }
    text = text.substr(0, end);
    const std::size_t point = std::min(text.find('.'), end);
    const auto whole = number<std::uint32_t>(text.substr(0, point));
    const auto tenths =
        point == end ? std::optional(0U) : number<std::uint32_t>(text.substr(point + 1));
    if (!whole || !tenths || *tenths > 9) {
        return std::nullopt;
    }
    const double value = *whole + *tenths / 10.0;
    return value > 0 ? std::optional(value) : std::nullopt;
}

/// Returns the lower of two limits. If only one limit is known, returns this limit.
template <class Number>
std::optional<Number> lower(std::optional<Number> one, std::optional<Number> other) {
    return one && other ? std::min(one, other) : one ? one : other;
}

/// Parses the distances from one NUMA node to all NUMA nodes, for example "10 21 31". Returns
/// std::nullopt if @p text is malformed.
std::optional<std::vector<unsigned>> distances(std::string_view text) {
    std::vector<unsigned> all;
    while (!text.empty()) {
        const std::size_t length = std::min(text.find(' '), text.size());
        const auto distance = number<unsigned>(text.substr(0, length));
        if (!distance) {
            return std::nullopt;
        }
        all.push_back(*distance);
        text.remove_prefix(std::min(length + 1, text.size()));
    }
    return all;
}

/// Parses the state of a port, for example "4: ACTIVE". Returns true if the port is active, and
/// std::nullopt if @p text is malformed.
std::optional<bool> is_active(std::string_view text) {
    const auto state = number<int>(text.substr(0, std::min(text.find(':'), text.size())));
    return state ? std::optional(*state == IBV_PORT_ACTIVE) : std::nullopt;
}

/// Returns true if device name @p one sorts before @p other. Shorter names are first, so that
/// "mlx5_2" is before "mlx5_10".
bool name_less(const std::string& one, const std::string& other) {
    return std::tuple(one.size(), std::string_view(one)) <
           std::tuple(other.size(), std::string_view(other));
}

/// Returns true if a PCIe link connects the PCI function to the bridge above it, as for an endpoint
/// and the upstream port of a switch, but not for the downstream ports inside a switch. Such a
/// function has an odd number of bridges above it: one root port, and two ports of each switch.
bool is_below_a_link(const PciFunction& function) {
    const auto end = std::find_if_not(
        function.ancestors.rbegin(), function.ancestors.rend(),
        [](const std::string& name) { return PciAddress::parse(name).has_value(); });
    return std::distance(function.ancestors.rbegin(), end) % 2 != 0;
}

bool nic_less(const Nic& one, const Nic& other) {
    if (one.pci.has_value() != other.pci.has_value()) {
        return one.pci.has_value();
    }
    if (one.pci && one.pci->address != other.pci->address) {
        return one.pci->address < other.pci->address;
    }
    return name_less(one.name, other.name);
}

} // namespace

TopologyReader::TopologyReader(std::string sys) : sys_(std::move(sys)) {}

void TopologyReader::add_problem(const std::string& path, const std::string& what) {
    topology_.problems_.push_back(path + ": " + what);
}

std::vector<std::string> TopologyReader::list(const std::string& directory) {
    if (auto names = sysfs::entries(directory)) {
        return *std::move(names);
    }
    add_problem(directory, std::generic_category().message(errno));
    return {};
}

template <class Parse>
auto TopologyReader::value(const std::string& path, Parse parse) -> decltype(parse({})) {
    const auto line = sysfs::read_line(path);
    if (!line) {
        return std::nullopt;
    }
    auto parsed = parse(*line);
    if (!parsed) {
        add_problem(path, "\"" + *line + "\" is malformed");
    }
    return parsed;
}

Topology TopologyReader::read() {
    if (auto devices = sysfs::real_path(sys_ + "/devices")) {
        devices_ = *std::move(devices);
        read_pci_functions();
        read_numa_nodes();
        read_nics();
    } else {
        add_problem(sys_ + "/devices", std::generic_category().message(errno));
    }
    return std::move(topology_);
}

void TopologyReader::read_pci_functions() {
    const std::string directory = sys_ + "/bus/pci/devices";
    for (const std::string& name : list(directory)) {
        const std::string path = entry(directory, name);
        const auto address = PciAddress::parse(name);
        if (!address) {
            add_problem(path, "the name is not a PCI address");
            continue;
        }
        auto chain = sysfs::components(path, devices_);
        if (!chain || chain->back() != name) {
            add_problem(path, chain            ? "the link leads to another function"
                              : errno == EXDEV ? "the link leads out of /sys/devices"
                                               : std::generic_category().message(errno));
            continue;
        }
        chain->pop_back();
        PciFunction function{.address = *address, .ancestors = *std::move(chain)};
        // The kernel writes -1 if the firmware assigns no NUMA node to the PCI function.
        function.numa_node =
            value(path + "/numa_node", [](std::string_view text) { return number<int>(text); });
        if (function.numa_node && *function.numa_node < 0) {
            function.numa_node.reset();
        }
        read_link(function, path);
        read_identity(function, path);
        topology_.functions_.push_back(std::move(function));
    }
    std::sort(topology_.functions_.begin(), topology_.functions_.end(),
              [](const PciFunction& one, const PciFunction& other) {
                  return one.address < other.address;
              });
}

void TopologyReader::read_link(PciFunction& function, const std::string& directory) {
    // For a PCI function without a PCIe link, the kernel writes the speed "Unknown", and the width
    // 0 or 255.
    const auto speed = [this](const std::string& path) {
        const auto limit = value(path, [](std::string_view text) {
            return text.starts_with("Unknown") ? std::optional(0.0) : number_before(text, " GT/s");
        });
        return limit == 0.0 ? std::nullopt : limit;
    };
    const auto width = [this](const std::string& path) {
        const auto limit =
            value(path, [](std::string_view text) { return number<unsigned>(text); });
        constexpr unsigned unknown = 255;
        return limit.value_or(unknown) % unknown == 0 ? std::nullopt : limit;
    };
    auto max_speed = speed(directory + "/max_link_speed");
    auto max_width = width(directory + "/max_link_width");
    if (is_below_a_link(function)) {
        const std::string port = sys_ + "/bus/pci/devices/" + function.ancestors.back();
        max_speed = lower(max_speed, speed(port + "/max_link_speed"));
        max_width = lower(max_width, width(port + "/max_link_width"));
    }
    if (max_speed && max_width) {
        function.link = PciLink{.transfer_rate = *max_speed, .width = *max_width};
    }
}

void TopologyReader::read_identity(PciFunction& function, const std::string& directory) {
    const auto vendor = value(directory + "/vendor", parse_hexadecimal);
    const auto device = value(directory + "/device", parse_hexadecimal);
    const auto class_code = value(directory + "/class", parse_hexadecimal);
    if (vendor && device && class_code) {
        function.identity =
            PciIdentity{.vendor = *vendor, .device = *device, .class_code = *class_code};
    }
}

void TopologyReader::read_numa_nodes() {
    const std::string directory = sys_ + "/devices/system/node";
    // If the directory of the NUMA nodes is missing, the kernel has no support for NUMA.
    const auto names = sysfs::entries(directory);
    for (const std::string& name : names.value_or(std::vector<std::string>())) {
        const auto id =
            name.starts_with("node") ? number<int>(std::string_view(name).substr(4)) : std::nullopt;
        if (id) {
            topology_.numa_nodes_.push_back(
                {.id = *id,
                 .distances = value(entry(entry(directory, name), "distance"), distances)
                                  .value_or(std::vector<unsigned>())});
        }
    }
    auto& nodes = topology_.numa_nodes_;
    std::sort(nodes.begin(), nodes.end(),
              [](const auto& one, const auto& other) { return one.id < other.id; });
    // The kernel writes one distance for each node, in the order of the nodes.
    for (auto& node : nodes) {
        if (node.distances.size() != nodes.size()) {
            if (!node.distances.empty()) {
                add_problem(directory + "/node" + std::to_string(node.id) + "/distance",
                            std::to_string(node.distances.size()) + " distances for " +
                                std::to_string(nodes.size()) + " nodes");
            }
            node.distances.clear();
        }
    }
}

void TopologyReader::read_nics() {
    const std::string directory = sys_ + "/class/infiniband";
    for (const std::string& name : list(directory)) {
        Nic nic{.name = name};
        read_pci_function_of(nic, entry(directory, name));
        read_ports(nic, entry(directory, name));
        topology_.nics_.push_back(std::move(nic));
    }
    std::sort(topology_.nics_.begin(), topology_.nics_.end(), nic_less);
}

void TopologyReader::read_pci_function_of(Nic& nic, const std::string& directory) {
    const std::string path = directory + "/device";
    const auto chain = sysfs::components(path, devices_);
    if (!chain) {
        nic.reason = errno == ENOENT  ? nic.name + " has no parent device: it is a software device"
                     : errno == EXDEV ? path + " leads out of /sys/devices"
                                      : path + ": " + std::generic_category().message(errno);
        return;
    }
    // The parent of a subfunction's RDMA device is not a PCI function, but a child of a PCI
    // function, for example "mlx5_core.sf.4".
    const auto name = std::find_if(chain->rbegin(), chain->rend(), [](const std::string& each) {
        return PciAddress::parse(each).has_value();
    });
    if (name == chain->rend()) {
        nic.reason = nic.name + " is not a PCI device";
        return;
    }
    const PciFunction* const function =
        topology_.find_pci_function(PciAddress::parse(*name).value_or(PciAddress()));
    if (function == nullptr) {
        nic.reason = *name + ", the PCI function of " + nic.name +
                     ", is not in /sys/bus/pci/devices or its link is broken";
        return;
    }
    nic.pci = *function;
}

void TopologyReader::read_ports(Nic& nic, const std::string& directory) {
    // If the device has no ports, the directory "ports" is missing.
    const auto ports = sysfs::entries(directory + "/ports");
    for (const std::string& port : ports.value_or(std::vector<std::string>())) {
        const std::string path = entry(directory + "/ports", port);
        const auto active = value(path + "/state", is_active);
        if (!active) {
            continue;
        }
        nic.active = nic.active.value_or(false) || *active;
        if (*active) {
            const auto rate = value(path + "/rate", [](std::string_view text) {
                return number_before(text, " Gb/sec");
            });
            if (rate) {
                nic.port_speed = std::max(nic.port_speed.value_or(0), *rate);
            }
        }
    }
}

} // namespace rdmabuf::detail
