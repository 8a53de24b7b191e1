// SPDX-License-Identifier: BSD-3-Clause
#include "device_info.hpp"

#include <exception>
#include <utility>

namespace rdmabuf::tools::devices {

namespace {

PortInfo query_port(const Context& context, std::uint8_t number) {
    PortInfo port{.number = number};
    try {
        port.attributes = context.port(number);
        port.speed = link_speed(port.attributes) / 1000.0; // Gbit/s
        port.gids = context.gid_table(number);
    } catch (const std::exception& error) {
        port.problem = error.what();
    }
    return port;
}

OpenedInfo query_opened(const Context& context) {
    OpenedInfo opened{.attributes = context.attributes(),
                      .dmabuf_import = context.dmabuf_import(),
                      .srd = context.srd(),
                      .srd_attributes = std::nullopt,
                      .ports = {}};
    if (opened.srd) {
        opened.srd_attributes = context.srd_attributes();
    }
    for (unsigned port = 1; port <= opened.attributes.port_count(); ++port) {
        opened.ports.push_back(query_port(context, static_cast<std::uint8_t>(port)));
    }
    return opened;
}

} // namespace

DeviceInfo query(const Device& device, const Topology& topology) {
    DeviceInfo info{.name = device.name(),
                    .driver = device.driver(),
                    .guid = device.guid(),
                    .nic = {},
                    .opened = std::nullopt};
    if (const Nic* const nic = topology.find_nic(info.name); nic != nullptr) {
        info.nic = *nic;
    }
    try {
        info.opened = query_opened(Context(device));
    } catch (const std::exception& error) {
        info.problem = error.what();
    }
    return info;
}

} // namespace rdmabuf::tools::devices
