// SPDX-License-Identifier: BSD-3-Clause
#include "abi/sysfs_tree.hpp"

#include <endian.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdio>

namespace softverbs::sysfs {

namespace {

template <class... Arguments>
std::string format(const char* text, Arguments... arguments) {
    std::array<char, 128> buffer{};
    std::snprintf(buffer.data(), buffer.size(), text, arguments...);
    return buffer.data();
}

/// Formats a GUID as sysfs does: four groups of four hexadecimal digits.
std::string guid_text(__be64 guid) {
    const std::uint64_t value = be64toh(guid);
    return format("%04x:%04x:%04x:%04x\n", static_cast<unsigned>(value >> 48),
                  static_cast<unsigned>(value >> 32) & 0xffff,
                  static_cast<unsigned>(value >> 16) & 0xffff,
                  static_cast<unsigned>(value) & 0xffff);
}

std::string gid_text(const ibv_gid& gid) {
    std::string text;
    for (std::size_t i = 0; i < sizeof gid.raw; i += 2) {
        text += format(i == 0 ? "%02x%02x" : ":%02x%02x", gid.raw[i], gid.raw[i + 1]);
    }
    return text + "\n";
}

constexpr std::array port_states{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
constexpr std::array physical_port_states{
    "<unknown>",         "Sleep",   "Polling", "Disabled", "PortConfigurationTraining", "LinkUp",
    "LinkErrorRecovery", "Phy Test"};

/// Formats a state as sysfs does: "4: ACTIVE".
template <std::size_t count>
std::string state_text(const std::array<const char*, count>& names, std::size_t state) {
    const std::size_t known = state < count ? state : 0;
    return format("%zu: %s\n", known, names[known]);
}

/// Formats the rate of a port as sysfs does: "100 Gb/sec (4X EDR)".
std::string rate_text(const ibv_port_attr& port) {
    struct Speed {
        unsigned tenths; // speed of one lane in units of 0.1 Gbit/s
        const char* name;
    };
    // Element N is the speed whose code is 2^N.
    constexpr std::array<Speed, 8> speeds{{{25, "SDR"},
                                           {50, "DDR"},
                                           {100, "QDR"},
                                           {100, "FDR10"},
                                           {140, "FDR"},
                                           {250, "EDR"},
                                           {500, "HDR"},
                                           {1000, "NDR"}}};
    const unsigned width = port.active_width;
    const unsigned lanes = width == 2 ? 4 : width == 4 ? 8 : width == 8 ? 12 : width == 16 ? 2 : 1;
    const unsigned code = port.active_speed;
    const Speed& found = speeds[std::has_single_bit(code) ? std::bit_width(code) - 1 : 0];
    const unsigned tenths = found.tenths * lanes;
    return tenths % 10 == 0
               ? format("%u Gb/sec (%uX %s)\n", tenths / 10, lanes, found.name)
               : format("%u.%u Gb/sec (%uX %s)\n", tenths / 10, tenths % 10, lanes, found.name);
}

void describe_port(Tree& tree, const std::string& directory, const Port& port) {
    const ibv_port_attr& attributes = port.attributes;
    const auto add = [&](const std::string& name, const std::string& text) {
        tree.files[directory + "/" + name] = text;
    };
    add("state", state_text(port_states, attributes.state));
    add("phys_state", state_text(physical_port_states, attributes.phys_state));
    add("rate", rate_text(attributes));
    add("lid", format("0x%x\n", attributes.lid));
    add("lid_mask_count", format("%u\n", attributes.lmc));
    add("sm_lid", format("0x%x\n", attributes.sm_lid));
    add("sm_sl", format("%u\n", attributes.sm_sl));
    add("cap_mask", format("0x%08x\n", attributes.port_cap_flags));
    add("link_layer", attributes.link_layer == IBV_LINK_LAYER_ETHERNET     ? "Ethernet\n"
                      : attributes.link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand\n"
                                                                           : "Unknown\n");
    for (int index = 0; index < attributes.gid_tbl_len; ++index) {
        const auto at = static_cast<std::size_t>(index);
        const std::string name = std::to_string(index);
        add("gids/" + name, gid_text(at < port.gids.size() ? port.gids[at].gid : ibv_gid{}));
        if (at < port.gids.size()) {
            add("gid_attrs/types/" + name,
                port.gids[at].gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2\n" : "IB/RoCE v1\n");
        }
    }
    for (std::size_t index = 0; index < port.pkeys.size(); ++index) {
        add("pkeys/" + std::to_string(index), format("0x%04x\n", port.pkeys[index]));
    }
    for (const char* const counter :
         {"link_downed", "link_error_recovery", "port_rcv_data", "port_rcv_errors",
          "port_rcv_packets", "port_xmit_data", "port_xmit_discards", "port_xmit_packets",
          "port_xmit_wait", "symbol_error"}) {
        add(std::string("counters/") + counter, "0\n");
    }
}

struct PciIdentity {
    unsigned vendor;
    unsigned device;
};

/// Returns the PCI IDs of a device. In verbs, vendor_id is usually an OUI, not a PCI vendor ID. For
/// the OUI of Mellanox, returns the PCI vendor ID of Mellanox. For all other vendors, returns the
/// lower 16 bits of vendor_id.
PciIdentity pci_identity(const ibv_device_attr& attributes) {
    constexpr unsigned mellanox_oui = 0x02c9;
    constexpr unsigned mellanox_pci = 0x15b3;
    const unsigned vendor =
        attributes.vendor_id == mellanox_oui ? mellanox_pci : attributes.vendor_id & 0xffff;
    return {vendor, attributes.vendor_part_id & 0xffff};
}

/// Formats a mask of all processors as sysfs does: groups of 32 bits, the highest group first.
std::string processor_mask() {
    long left = std::max(1L, ::sysconf(_SC_NPROCESSORS_CONF));
    std::string text;
    for (; left > 0; left -= 32) {
        const std::string group =
            format("%08x", left >= 32 ? ~0U : (1U << static_cast<unsigned>(left)) - 1);
        text.insert(0, text.empty() ? group : group + ",");
    }
    return text + "\n";
}

void describe_pci_function(Tree& tree, const std::string& directory, const Device& device) {
    const auto add = [&](const char* name, const std::string& text) {
        tree.files[directory + "/" + name] = text;
    };
    const PciIdentity identity = pci_identity(device.attributes.orig_attr);
    const bool ethernet = device.ports.front().attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    const unsigned pci_class = ethernet ? 0x020000 : 0x020700;
    add("vendor", format("0x%04x\n", identity.vendor));
    add("device", format("0x%04x\n", identity.device));
    add("subsystem_vendor", format("0x%04x\n", identity.vendor));
    add("subsystem_device", format("0x%04x\n", identity.device));
    add("class", format("0x%06x\n", pci_class));
    add("revision", "0x00\n");
    add("irq", "0\n");
    add("enable", "1\n");
    add("numa_node", "0\n");
    add("local_cpus", processor_mask());
    add("local_cpulist", format("0-%ld\n", std::max(1L, ::sysconf(_SC_NPROCESSORS_CONF)) - 1));
    for (const char* const which : {"max", "current"}) {
        add((std::string(which) + "_link_speed").c_str(), "16.0 GT/s PCIe\n");
        add((std::string(which) + "_link_width").c_str(), "16\n");
    }
    add("uevent", "PCI_SLOT_NAME=" + pci_name(device) + "\n");
    std::string resource;
    for (int line = 0; line < 13; ++line) {
        resource += "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
    }
    add("resource", resource);
    // The first 64 bytes of the PCI configuration space of the device. Its numbers are
    // little-endian.
    std::string config(64, '\0');
    const auto put = [&config](std::size_t offset, unsigned value, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i) {
            config[offset + i] = static_cast<char>(value >> (8 * i));
        }
    };
    put(0x00, identity.vendor, 2);
    put(0x02, identity.device, 2);
    put(0x09, pci_class, 3);
    put(0x2c, identity.vendor, 2);
    put(0x2e, identity.device, 2);
    add("config", config);
}

} // namespace

std::string pci_name(const Device& device) {
    return format("5056:00:00.%x", device.index);
}

void describe(Tree& tree, const Device& device) {
    const std::string function = pci_name(device);
    const std::string pci = std::string(pci_root) + "/" + function;
    describe_pci_function(tree, pci, device);
    const std::string up_to_sys = "../../devices/pci5056:00/" + function;
    tree.links["/sys/bus/pci/devices/" + function] = "../" + up_to_sys;
    tree.links[pci + "/subsystem"] = "../../../bus/pci";
    const std::string bus = std::string(pci_root) + "/pci_bus/5056:00";
    tree.links[bus + "/device"] = "../../../pci5056:00";
    tree.links["/sys/class/pci_bus/5056:00"] = "../../devices/pci5056:00/pci_bus/5056:00";

    const std::string name = device.name;
    const std::string infiniband = pci + "/infiniband/" + name;
    const ibv_device_attr& attributes = device.attributes.orig_attr;
    const auto add = [&](const char* file, const std::string& text) {
        tree.files[infiniband + "/" + file] = text;
    };
    add("node_type", device.node_type == IBV_NODE_UNSPECIFIED ? "7: unspecified\n" : "1: CA\n");
    add("node_guid", guid_text(device.guid));
    add("sys_image_guid", guid_text(attributes.sys_image_guid));
    add("node_desc", "softverbs " + name + "\n");
    add("fw_ver", std::string(attributes.fw_ver) + "\n");
    add("hca_type", attributes.vendor_id == 0x02c9 ? format("MT%u\n", attributes.vendor_part_id)
                                                   : std::string("softverbs\n"));
    add("hw_rev", format("%x\n", attributes.hw_ver));
    add("board_id", format("SV_%07u\n", attributes.vendor_part_id));
    tree.links[infiniband + "/device"] = "../../../" + function;
    tree.links[infiniband + "/subsystem"] = "../../../../../class/infiniband";
    for (std::size_t index = 0; index < device.ports.size(); ++index) {
        describe_port(tree, infiniband + "/ports/" + std::to_string(index + 1),
                      device.ports[index]);
    }
    tree.links["/sys/class/infiniband/" + name] = up_to_sys + "/infiniband/" + name;

    const std::string uverbs_name = device.dev_name;
    const std::string uverbs = pci + "/infiniband_verbs/" + uverbs_name;
    tree.files[uverbs + "/ibdev"] = name + "\n";
    tree.files[uverbs + "/abi_version"] = "1\n";
    tree.files[uverbs + "/dev"] = format("231:%u\n", 192 + device.index);
    tree.links[uverbs + "/device"] = "../../../" + function;
    tree.links["/sys/class/infiniband_verbs/" + uverbs_name] =
        up_to_sys + "/infiniband_verbs/" + uverbs_name;
    tree.files["/sys/class/infiniband_verbs/abi_version"] = "6\n";
}

void add_network_interface(Tree& tree, const Device& device, const std::string& interface) {
    const std::string function = std::string(pci_root) + "/" + pci_name(device);
    tree.links[function + "/net/" + interface] = "/sys/class/net/" + interface;
}

} // namespace softverbs::sysfs
