// SPDX-License-Identifier: BSD-3-Clause
#include "command_line.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools {

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
    return option->get_option_text().empty() ? "" : " " + option->get_option_text();
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
    const std::size_t width = 79 - column_width_;
    std::istringstream words(option->get_description());
    std::string text;
    std::size_t used = 0;
    for (std::string word; words >> word;) {
        if (!text.empty()) {
            const bool fits = used + 1 + word.size() <= width;
            text += fits ? ' ' : '\n';
            used = fits ? used + 1 : 0;
        }
        text += word;
        used += word.size();
    }
    return text;
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
    // CLI11 separates groups of options by two empty lines. The loop below removes one of these
    // lines.
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) {
        text.erase(at, 1);
    }
    return text;
}

OneOf::OneOf(std::vector<std::string> values) {
    func_ = [values = std::move(values)](const std::string& value) -> std::string {
        if (std::ranges::find(values, value) != values.end()) {
            return {};
        }
        return fmt::format("{} not in {{{}}}{}", value, fmt::join(values, ", "),
                           suggestion(value, values));
    };
}

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

void add_output_options(CLI::App& app, bool& json) {
    app.option_defaults()->group("Output");
    app.add_flag("--json", json, "Print one JSON object");
    app.set_help_flag("-h,--help", "Print this text");
}

void add_memory_options(CLI::App& app, MemoryOptions& options) {
    app.option_defaults()->group("Memory");
    add_option(app, "--memory", "TYPE", options.type,
               "host (default); cuda: NVIDIA GPU; level_zero: Intel GPU; rocm: AMD GPU; "
               "neuron: AWS Trainium; udmabuf, dma_heap, drm: dma-bufs "
               "of the kernel; memfd: replaces dma-bufs on softverbs; external: a dma-buf "
               "known to rdmabuf only by its descriptor; dm: memory of the RDMA device")
        ->check(OneOf(memory_types()));
    add_option(app, "--heap", "NAME", options.heap,
               "With dma_heap: heap in /dev/dma_heap (default system)");
    auto* const node =
        add_option(app, "--drm-node", "PATH", options.drm_node,
                   "With drm: /dev/dri/cardN (default: the first with dumb buffers)");
    add_option(app, "--drm-driver", "NAME", options.drm_driver,
               "With drm: the first node of this driver, such as vgem")
        ->excludes(node);
}

} // namespace rdmabuf::tools
