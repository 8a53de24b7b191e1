// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <algorithm>

#include "names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools {

void check_device_name(const std::string& name, const std::vector<std::string>& devices) {
    if (std::ranges::find(devices, name) == devices.end()) {
        throw UsageError(fmt::format("--device {} does not exist; devices of this machine: {}{}",
                                     name, fmt::join(devices, ", "), suggestion(name, devices)));
    }
}

const Device& find_device(const DeviceList& list, const std::string& name) {
    std::vector<std::string> names;
    for (const Device& device : list) {
        names.push_back(device.name());
    }
    if (!names.empty()) {
        check_device_name(name, names);
    }
    return list.find(name);
}

Context open_device(const DeviceOptions& options) {
    if (options.device.empty()) {
        return Context::open_first();
    }
    const DeviceList list;
    return Context(find_device(list, options.device));
}

GidEntry choose_gid(const Context& context, const DeviceOptions& options) {
    const std::uint8_t port = options.port.value_or(1);
    if (const unsigned ports = context.attributes().port_count(); port > ports) {
        throw UsageError(fmt::format("--port {} does not exist; {} has {} port(s)", port,
                                     context.device_name(), ports));
    }
    if (!options.gid_index) {
        return context.best_gid(port);
    }
    std::vector<std::string> used;
    for (const GidEntry& entry : context.gid_table(port)) {
        if (entry.index == *options.gid_index) {
            return entry;
        }
        used.push_back(
            fmt::format("{} ({}, {})", entry.index, to_string(entry.gid), to_string(entry.type)));
    }
    throw UsageError(fmt::format("--gid-index {} has no GID on {} port {}; indices with one: {}",
                                 *options.gid_index, context.device_name(), port,
                                 fmt::join(used, ", ")));
}

const std::vector<std::string>& memory_types() {
    static const std::vector<std::string> types{"host",  "cuda",     "level_zero", "neuron",
                                                "rocm",  "udmabuf",  "dma_heap",   "drm",
                                                "memfd", "external", "dm"};
    return types;
}

void check(const MemoryOptions& options) {
    if (options.heap && options.type != "dma_heap") {
        throw UsageError("--heap requires --memory dma_heap");
    }
    if (options.drm_node && options.type != "drm") {
        throw UsageError("--drm-node requires --memory drm");
    }
    if (options.drm_driver && options.type != "drm") {
        throw UsageError("--drm-driver requires --memory drm");
    }
}

} // namespace rdmabuf::tools
