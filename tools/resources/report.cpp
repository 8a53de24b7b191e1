// SPDX-License-Identifier: BSD-3-Clause
#include "../format.hpp"
#include "../json.hpp"
#include "kernel_resources.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools::resources {

namespace {

std::string describe_owner(std::uint32_t pid, const std::string& owner) {
    if (pid == 0) {
        return owner.empty() ? "kernel" : fmt::format("kernel, {}", owner);
    }
    return owner.empty() ? fmt::format("process {}", pid)
                         : fmt::format("process {}, {}", pid, owner);
}

std::string describe(const QueuePairInfo& qp) {
    std::string text = fmt::format("{} {}", qp.type, qp.state);
    text += qp.port != 0 ? fmt::format(", port {}", qp.port) : "";
    text += qp.remote != 0 ? fmt::format(", peer 0x{:06x}", qp.remote) : "";
    return text + ", " + describe_owner(qp.pid, qp.owner);
}

std::string text_of_device(const DeviceResources& device, const TextStyle& style) {
    std::string out = paint(style, Colour::heading, device.name) + "\n";
    std::vector<std::string> counts;
    counts.reserve(device.counts.size());
    for (const auto& [name, count] : device.counts) {
        const auto limit = device.limits.find(name);
        counts.push_back(limit != device.limits.end()
                             ? fmt::format("{} {} of {}", name, count, limit->second)
                             : fmt::format("{} {}", name, count));
    }
    out += field(style, "objects", fmt::format("{}", fmt::join(counts, ", ")));
    for (const QueuePairInfo& qp : device.queue_pairs) {
        out += field(style, fmt::format("qp 0x{:06x}", qp.number), describe(qp));
    }
    for (const RegionInfo& region : device.regions) {
        out += field(style, fmt::format("mr {}", region.number),
                     fmt::format("{}, {}", format_size(region.length),
                                 describe_owner(region.pid, region.owner)));
    }
    if (!device.problem.empty()) {
        out += field(style, "not known", device.problem);
    }
    return out;
}

} // namespace

std::string to_text(const Report& report, const TextStyle& style) {
    if (report.devices.empty()) {
        return wrap(style, "No RDMA resources: " + report.reason, "", "");
    }
    std::string out;
    for (const DeviceResources& device : report.devices) {
        out += (out.empty() ? "" : "\n") + text_of_device(device, style);
    }
    return out;
}

std::string to_json(const Report& report) {
    const auto null_if_zero = [](std::uint32_t number) {
        return number != 0 ? Json(number) : Json();
    };
    Json json;
    json["devices"] = Json::array();
    for (const DeviceResources& device : report.devices) {
        Json qps = Json::array();
        for (const QueuePairInfo& qp : device.queue_pairs) {
            qps.push_back({{"number", qp.number},
                           {"remote", null_if_zero(qp.remote)},
                           {"port", qp.port},
                           {"type", qp.type},
                           {"state", qp.state},
                           {"pid", null_if_zero(qp.pid)},
                           {"owner", or_null(qp.owner)}});
        }
        Json regions = Json::array();
        for (const RegionInfo& region : device.regions) {
            regions.push_back({{"number", region.number},
                               {"length", region.length},
                               {"pid", null_if_zero(region.pid)},
                               {"owner", or_null(region.owner)}});
        }
        json["devices"].push_back({{"name", device.name},
                                   {"counts", device.counts},
                                   {"limits", device.limits},
                                   {"queue_pairs", std::move(qps)},
                                   {"regions", std::move(regions)},
                                   {"problem", or_null(device.problem)}});
    }
    json["reason"] = or_null(report.reason);
    return json.dump();
}

} // namespace rdmabuf::tools::resources
