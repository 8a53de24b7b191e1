// SPDX-License-Identifier: BSD-3-Clause
// program PLUGIN: uses the exporters of the plugin, and lets exceptions pass between the program,
// the library and the plugin.
#include <dlfcn.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <rdmabuf/rdmabuf.hpp>

#include "plugin.hpp"

namespace {

using namespace rdmabuf;

void require(bool holds, const char* what) {
    if (!holds) {
        std::fprintf(stderr, "failed: %s\n", what);
        std::exit(EXIT_FAILURE);
    }
}

/// The errno of the Error that a function throws; 0 without one.
template <class Function>
int error_of(Function function) {
    try {
        function();
    } catch (const Error& error) {
        return error.code().value();
    }
    return 0;
}

template <class Function>
Function* symbol(void* plugin, const char* name) {
    auto* found = reinterpret_cast<Function*>(dlsym(plugin, name));
    require(found != nullptr, name);
    return found;
}

void throw_in_library() {
    static_cast<void>(Resolver().exporter("none"));
}

} // namespace

int main(int argc, char** argv) {
    require(argc == 2, "the name of the plugin");
    void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    require(plugin != nullptr, "dlopen");

    Resolver resolver;
    symbol<decltype(add_exporters)>(plugin, "add_exporters")(&resolver);
    const auto find = [&](std::uintptr_t address) { static_cast<void>(resolver.find(address)); };
    require(error_of([&] { find(failing_address); }) == ENODEV,
            "the program catches an Error that the plugin throws, through the library");
    require(error_of([&] { find(0x3000); }) == EFAULT, "no exporter knows an unknown address");
    const Resolver::Match match = resolver.find(known_address);
    require(match.exporter->name() == "outside" && match.allocation.length == 4096,
            "the plugin's exporter finds its address");
    require(resolver.export_range(known_address, 4096).fd() > 0,
            "the plugin's exporter exports a range");

    require(error_of([&] { static_cast<void>(resolver.allocator("outside")); }) == ENOTSUP,
            "the library sees that the plugin's exporter is no allocator");
    const std::shared_ptr<Allocator> allocator = resolver.allocator("outside_allocator");
    require(error_of([&] { static_cast<void>(allocator->allocate(1)); }) == ENOMEM,
            "the program catches an Error that the plugin's allocator throws");

    const auto catch_error = symbol<decltype(catch_error_of)>(plugin, "catch_error_of");
    require(catch_error(throw_in_library) == ENOENT,
            "the plugin catches an Error that the library throws");
    require(catch_error([] { throw Error(EPERM, "main"); }) == EPERM,
            "the plugin catches an Error that the program throws");
    return EXIT_SUCCESS;
}
