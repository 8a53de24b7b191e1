// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <algorithm>

#include "command_line.hpp"
#include "names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools {

void add_device_name_option(CLI::App& app, DeviceOptions& options) {
    app.option_defaults()->group("Device");
    add_option(app, "--device", "NAME", options.device,
               "RDMA device (default: the first with an active port)");
}

void add_device_options(CLI::App& app, DeviceOptions& options) {
    add_device_name_option(app, options);
    add_option(app, "--port", "N", options.port, "Port of the device (default 1)")
        ->check(CLI::Range(1, 255));
    add_option(app, "--gid-index", "N", options.gid_index,
               "Index in the GID table of the port (default: RoCE v2 over IPv4 first)")
        ->check(CLI::Range(0, 255));
}

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

void add_output_options(CLI::App& app, bool& json) {
    app.option_defaults()->group("Output");
    app.add_flag("--json", json, "Print one JSON object");
    app.set_help_flag("-h,--help", "Print this text");
}

const std::vector<std::string>& memory_types() {
    static const std::vector<std::string> types{"host",  "cuda",     "level-zero", "neuron",
                                                "rocm",  "udmabuf",  "dma-heap",   "drm",
                                                "memfd", "external", "dm"};
    return types;
}

void add_memory_options(CLI::App& app, MemoryOptions& options) {
    app.option_defaults()->group("Memory");
    add_option(app, "--memory", "TYPE", options.type,
               "host (default); cuda: NVIDIA GPU; level-zero: Intel GPU; rocm: AMD GPU; "
               "neuron: AWS Trainium; udmabuf, dma-heap, drm: dma-bufs "
               "of the kernel; memfd: replaces dma-bufs on softverbs; external: a dma-buf "
               "known to rdmabuf only by its descriptor; dm: memory of the RDMA device")
        ->check(OneOf(memory_types()));
    add_option(app, "--heap", "NAME", options.heap,
               "With dma-heap: heap in /dev/dma_heap (default system)");
    auto* const node =
        add_option(app, "--drm-node", "PATH", options.drm_node,
                   "With drm: /dev/dri/cardN (default: the first with dumb buffers)");
    add_option(app, "--drm-driver", "NAME", options.drm_driver,
               "With drm: the first node of this driver, such as vgem")
        ->excludes(node);
}

void check(const MemoryOptions& options) {
    if (options.heap && options.type != "dma-heap") {
        throw UsageError("--heap requires --memory dma-heap");
    }
    if (options.drm_node && options.type != "drm") {
        throw UsageError("--drm-node requires --memory drm");
    }
    if (options.drm_driver && options.type != "drm") {
        throw UsageError("--drm-driver requires --memory drm");
    }
}

} // namespace rdmabuf::tools
