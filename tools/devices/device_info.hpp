// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/quirks.hpp>
#include <rdmabuf/topology.hpp>

#include "../text.hpp"

namespace rdmabuf::tools::devices {

struct PortInfo {
    std::uint8_t number = 0;
    ibv_port_attr attributes{};
    /// The speed of the link in Gbit/s; 0 if the device does not report it.
    double speed = 0;
    std::vector<GidEntry> gids = {};
    /// The reason why the port or its GID table could not be queried; empty after success.
    std::string problem = {};
};

/// The properties that only an opened device reports.
struct OpenedInfo {
    DeviceAttributes attributes;
    Availability dmabuf_import;
    Availability srd;
    std::optional<SrdAttributes> srd_attributes;
    std::vector<PortInfo> ports;
};

struct DeviceInfo {
    std::string name;
    std::string driver;
    std::uint64_t guid = 0;
    /// The entry of the device in the topology of the machine; Nic::name is empty if sysfs does not
    /// describe the device.
    Nic nic;
    /// Empty if the device could not be opened or queried: `problem` then has the reason.
    std::optional<OpenedInfo> opened;
    std::string problem = {};
};

/// The result of `rdmabuf devices`.
struct Report {
    std::vector<DeviceInfo> devices = {};
    /// The reason why `devices` is empty; empty if `devices` is not empty.
    std::string reason = {};
};

/// Opens and queries a device. Errors are stored in the result.
[[nodiscard]] DeviceInfo query(const Device& device, const Topology& topology);

[[nodiscard]] std::string to_text(const Report& report, const TextStyle& style);
/// Returns one JSON object and a newline.
[[nodiscard]] std::string to_json(const Report& report);

} // namespace rdmabuf::tools::devices
