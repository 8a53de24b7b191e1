// SPDX-License-Identifier: BSD-3-Clause
#include "device_info.hpp"

#include <array>
#include <exception>
#include <utility>

namespace rdmabuf::tools::devices {

namespace {

PortInfo query_port(const Context& context, std::uint8_t number) {
    PortInfo port{.number = number};
    try {
        port.attributes = context.port(number);
        port.speed = link_speed(port.attributes);
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

double link_speed(const ibv_port_attr& port) noexcept {
    // The values of LinkSpeedActive and LinkWidthActive in PortInfo of the InfiniBand
    // specification, and the nominal rate of one lane.
    constexpr std::array<std::pair<unsigned, double>, 9> speeds{
        {{1, 2.5}, {2, 5}, {4, 10}, {8, 10}, {16, 14}, {32, 25}, {64, 50}, {128, 100}, {256, 200}}};
    constexpr std::array<std::pair<unsigned, unsigned>, 5> widths{
        {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}}};
    for (const auto& [speed, rate] : speeds) {
        for (const auto& [width, lanes] : widths) {
            if (speed == port.active_speed && width == port.active_width) {
                return rate * lanes;
            }
        }
    }
    return 0;
}

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
