// SPDX-License-Identifier: BSD-3-Clause
#include "command_line_parts.hpp"

namespace examples {

void add_memory_options(CLI::App& app, MemoryChoice& choice,
                        std::span<const Named<MemoryType>> types, const char* help) {
    add_choice<MemoryType>(app, "--memory", choice.type, types, help)->type_name("TYPE");
    app.add_option("--heap", choice.heap, "Heap in /dev/dma_heap (default system)")
        ->type_name("NAME");
    app.add_option("--drm-node", choice.drm_node,
                   "/dev/dri/cardN (default: the first that can make dumb buffers)")
        ->type_name("PATH");
    app.add_option("--drm-driver", choice.drm_driver,
                   "Instead: the first node of this driver, as in vgem")
        ->type_name("NAME");
}

std::string help_text(const CLI::App& app) {
    std::string text = app.help();
    for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) {
        text.erase(at, 1);
    }
    return text;
}

Given given_options(const CLI::App& app) {
    Given given;
    for (const CLI::Option* option : app.get_options()) {
        if (option->count() > 0) {
            given.insert(option->get_name());
        }
    }
    return given;
}

void refuse_if(bool pointless, const Given& given, std::initializer_list<const char*> options,
               const char* why) {
    for (const char* option : options) {
        if (pointless && given.contains(option)) {
            throw UsageError(std::string(option) + " " + why);
        }
    }
}

void check_memory_options(const MemoryChoice& choice, const Given& given) {
    refuse_if(choice.type != MemoryType::dma_heap, given, {"--heap"}, "needs --memory dma-heap");
    refuse_if(choice.type != MemoryType::drm, given, {"--drm-node", "--drm-driver"},
              "needs --memory drm");
    refuse_if(given.contains("--drm-node"), given, {"--drm-driver"},
              "chooses a node, and so does --drm-node: leave one out");
}

} // namespace examples
