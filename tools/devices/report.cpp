// SPDX-License-Identifier: BSD-3-Clause
#include <array>

#include "../format.hpp"
#include "../json.hpp"
#include "device_info.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools::devices {

namespace {

const char* state_name(ibv_port_state state) {
    switch (state) {
        case IBV_PORT_DOWN:
            return "down";
        case IBV_PORT_INIT:
            return "initialising";
        case IBV_PORT_ARMED:
            return "armed";
        case IBV_PORT_ACTIVE:
            return "active";
        case IBV_PORT_ACTIVE_DEFER:
            return "active, deferred";
        default:
            return "unknown";
    }
}

const char* link_layer_name(std::uint8_t link_layer) {
    switch (link_layer) {
        case IBV_LINK_LAYER_INFINIBAND:
            return "InfiniBand";
        case IBV_LINK_LAYER_ETHERNET:
            return "Ethernet";
        default:
            return "unspecified";
    }
}

/// Returns the MTU in bytes; 0 for an unknown value.
unsigned mtu_bytes(ibv_mtu mtu) {
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128U << static_cast<unsigned>(mtu) : 0;
}

const char* atomics_name(ibv_atomic_cap capability) {
    switch (capability) {
        case IBV_ATOMIC_NONE:
            return "none";
        case IBV_ATOMIC_HCA:
            return "atomic among requests of this device (IBV_ATOMIC_HCA)";
        case IBV_ATOMIC_GLOB:
            return "atomic also with the CPU (IBV_ATOMIC_GLOB)";
    }
    return "unknown";
}

/// Returns the names of the operations in a mask of IBV_ODP_SUPPORT_* bits.
std::vector<std::string> odp_operations(std::uint32_t mask) {
    constexpr std::array names{"send", "recv", "write", "read", "atomic", "srq_recv"};
    std::vector<std::string> operations;
    for (std::size_t bit = 0; bit < names.size(); ++bit) {
        if ((mask >> bit & 1U) != 0) {
            operations.emplace_back(names[bit]);
        }
    }
    return operations;
}

std::string describe_odp(const ibv_odp_caps& caps) {
    if ((caps.general_caps & IBV_ODP_SUPPORT) == 0) {
        return "no";
    }
    const auto rc = odp_operations(caps.per_transport_caps.rc_odp_caps);
    return fmt::format("yes{}; RC: {}",
                       (caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0
                           ? ", also of the whole address space"
                           : "",
                       rc.empty() ? "none" : fmt::format("{}", fmt::join(rc, ", ")));
}

struct Limit {
    const char* name;
    std::uint64_t value;
    bool bytes;
};
std::vector<Limit> limits_of(const OpenedInfo& opened) {
    const ibv_device_attr& attributes = opened.attributes.native.orig_attr;
    const auto count = [](const char* name, int value) {
        return Limit{.name = name, .value = static_cast<std::uint64_t>(value), .bytes = false};
    };
    return {{.name = "max_mr_size", .value = attributes.max_mr_size, .bytes = true},
            {.name = "max_dm_size", .value = opened.attributes.max_dm_size(), .bytes = true},
            count("max_mr", attributes.max_mr),
            count("max_pd", attributes.max_pd),
            count("max_qp", attributes.max_qp),
            count("max_qp_wr", attributes.max_qp_wr),
            count("max_sge", attributes.max_sge),
            count("max_qp_rd_atom", attributes.max_qp_rd_atom),
            count("max_cq", attributes.max_cq),
            count("max_cqe", attributes.max_cqe),
            count("max_srq", attributes.max_srq)};
}

std::string describe_limit(const Limit& limit) {
    return fmt::format("{} {}", limit.name,
                       limit.bytes ? format_size(limit.value) : std::to_string(limit.value));
}

std::string describe_quirk(const ImporterQuirk& quirk) {
    std::string text =
        quirk.kernel.empty()
            ? fmt::format("{} cannot register dma-bufs", quirk.driver)
            : fmt::format("{} registers dma-bufs since Linux {} and rdma-core {}, {}", quirk.driver,
                          quirk.kernel, quirk.rdma_core, to_string(quirk.mode));
    return quirk.note.empty() ? text : text + "; " + std::string(quirk.note);
}

std::string text_of_port(const PortInfo& port, const TextStyle& style) {
    std::string out;
    const std::string name = fmt::format("port {}", port.number);
    if (!port.problem.empty()) {
        return field(style, name, port.problem);
    }
    const ibv_port_attr& attributes = port.attributes;
    const bool active = attributes.state == IBV_PORT_ACTIVE;
    std::string value = fmt::format(
        "{}, {}", paint(style, active ? Colour::good : Colour::bad, state_name(attributes.state)),
        link_layer_name(attributes.link_layer));
    if (attributes.lid != 0) {
        value += fmt::format(", LID {}", attributes.lid);
    }
    if (port.speed > 0) {
        value += fmt::format(", {:.0f} Gbit/s", port.speed);
    }
    value += fmt::format(", MTU {}, max_msg_sz {}", mtu_bytes(attributes.active_mtu),
                         format_size(attributes.max_msg_sz));
    out += field(style, name, value);
    for (const GidEntry& gid : port.gids) {
        out += field(style, fmt::format("  GID {}", gid.index),
                     fmt::format("{} ({})", to_string(gid.gid), to_string(gid.type)));
    }
    return out;
}

std::string text_of_opened(const OpenedInfo& opened, const TextStyle& style) {
    const ibv_device_attr& attributes = opened.attributes.native.orig_attr;
    std::string out;
    out += field(style, "firmware", opened.attributes.firmware_version());
    out += field(style, "part",
                 fmt::format("vendor 0x{:04x}, part {}, revision {}", attributes.vendor_id,
                             attributes.vendor_part_id, attributes.hw_ver));
    out += field(style, "dma-buf import",
                 opened.dmabuf_import
                     ? paint(style, Colour::good, "yes")
                     : paint(style, Colour::bad, "no") +
                           to_string(opened.dmabuf_import).substr(std::string("no").size()));
    out += field(style, "on-demand paging", describe_odp(opened.attributes.native.odp_caps));
    const std::uint64_t dm = opened.attributes.max_dm_size();
    out += field(style, "device memory", dm != 0 ? format_size(dm) : "none");
    out += field(style, "atomics", atomics_name(attributes.atomic_cap));
    if (const auto& srd = opened.srd_attributes) {
        out += field(style, "SRD queue pairs",
                     fmt::format("yes; RDMA read {}, RDMA write {}, at most {} each",
                                 srd->rdma_read ? "yes" : "no", srd->rdma_write ? "yes" : "no",
                                 format_size(srd->max_rdma_size)));
    }
    const std::vector<Limit> all = limits_of(opened);
    std::vector<std::string> limits;
    limits.reserve(all.size());
    for (const Limit& limit : all) {
        limits.push_back(describe_limit(limit));
    }
    out += field(style, "limits", fmt::format("{}", fmt::join(limits, ", ")));
    for (const PortInfo& port : opened.ports) {
        out += text_of_port(port, style);
    }
    return out;
}

std::string text_of_device(const DeviceInfo& device, const TextStyle& style) {
    std::string out = paint(style, Colour::heading, device.name) + "\n";
    out += field(style, "driver", device.driver.empty() ? "not in sysfs" : device.driver);
    out += field(style, "node GUID", guid_to_string(device.guid));
    if (const auto& pci = device.nic.pci) {
        std::string place = to_string(pci->address);
        if (pci->numa_node) {
            place += fmt::format(", NUMA node {}", *pci->numa_node);
        }
        if (pci->link) {
            place += fmt::format(", PCIe {} GT/s x{}", pci->link->transfer_rate, pci->link->width);
        }
        out += field(style, "PCI function", place);
    }
    if (const ImporterQuirk* const quirk = find_importer_quirk(device.driver)) {
        out += field(style, "kernel driver", describe_quirk(*quirk));
    }
    if (device.opened) {
        out += text_of_opened(*device.opened, style);
    } else {
        out += field(style, paint(style, Colour::bad, "not usable"), device.problem);
    }
    return out;
}

Json json_of_port(const PortInfo& port) {
    const ibv_port_attr& attributes = port.attributes;
    Json json;
    json["port"] = port.number;
    json["problem"] = or_null(port.problem);
    json["state"] = state_name(attributes.state);
    json["link_layer"] = link_layer_name(attributes.link_layer);
    json["lid"] = attributes.lid;
    json["speed_Gbps"] = port.speed > 0 ? Json(port.speed) : Json();
    json["active_mtu"] = mtu_bytes(attributes.active_mtu);
    json["max_mtu"] = mtu_bytes(attributes.max_mtu);
    json["max_msg_sz"] = attributes.max_msg_sz;
    json["gids"] = Json::array();
    for (const GidEntry& gid : port.gids) {
        json["gids"].push_back({{"index", gid.index},
                                {"gid", to_string(gid.gid)},
                                {"type", to_string(gid.type)},
                                {"ifindex", gid.netdev_ifindex}});
    }
    return json;
}

Json json_of(const Availability& availability) {
    return {{"available", availability.available},
            {"reason", or_null(availability.reason)},
            {"remedy", or_null(availability.remedy)}};
}

void add_opened(Json& json, const OpenedInfo& opened) {
    const ibv_device_attr& attributes = opened.attributes.native.orig_attr;
    const ibv_odp_caps& odp = opened.attributes.native.odp_caps;
    json["firmware"] = opened.attributes.firmware_version();
    json["vendor_id"] = attributes.vendor_id;
    json["vendor_part_id"] = attributes.vendor_part_id;
    json["hw_ver"] = attributes.hw_ver;
    json["dmabuf_import"] = json_of(opened.dmabuf_import);
    json["on_demand_paging"] = {{"supported", (odp.general_caps & IBV_ODP_SUPPORT) != 0},
                                {"implicit", (odp.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0},
                                {"rc", odp_operations(odp.per_transport_caps.rc_odp_caps)}};
    json["atomics"] = opened.attributes.atomics();
    json["srd"] = json_of(opened.srd);
    if (const auto& srd = opened.srd_attributes) {
        json["srd"]["rdma_read"] = srd->rdma_read;
        json["srd"]["rdma_write"] = srd->rdma_write;
        json["srd"]["max_rdma_size"] = srd->max_rdma_size;
    }
    for (const Limit& limit : limits_of(opened)) {
        json["limits"][limit.name] = limit.value;
    }
    json["ports"] = Json::array();
    for (const PortInfo& port : opened.ports) {
        json["ports"].push_back(json_of_port(port));
    }
}

Json json_of(const DeviceInfo& device) {
    Json json;
    json["name"] = device.name;
    json["driver"] = or_null(device.driver);
    json["guid"] = guid_to_string(device.guid);
    const auto& pci = device.nic.pci;
    json["pci_address"] = pci ? Json(to_string(pci->address)) : Json();
    json["numa_node"] = pci && pci->numa_node ? Json(*pci->numa_node) : Json();
    const ImporterQuirk* const quirk = find_importer_quirk(device.driver);
    json["quirk"] = quirk != nullptr ? Json(describe_quirk(*quirk)) : Json();
    json["problem"] = or_null(device.problem);
    if (device.opened) {
        add_opened(json, *device.opened);
    }
    return json;
}

} // namespace

std::string to_text(const Report& report, const TextStyle& style) {
    if (report.devices.empty()) {
        return wrap(style, "No RDMA device: " + report.reason, "", "");
    }
    std::string out;
    for (const DeviceInfo& device : report.devices) {
        out += (out.empty() ? "" : "\n") + text_of_device(device, style);
    }
    return out;
}

std::string to_json(const Report& report) {
    Json json;
    json["devices"] = Json::array();
    for (const DeviceInfo& device : report.devices) {
        json["devices"].push_back(json_of(device));
    }
    json["reason"] = or_null(report.reason);
    return json.dump();
}

} // namespace rdmabuf::tools::devices
