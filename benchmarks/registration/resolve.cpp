// SPDX-License-Identifier: BSD-3-Clause
// Measures what a registration cache saves: compares the time to export memory with the time to
// look up the allocation at an address, and the generation of this allocation. A cache hit needs
// only this lookup. If the generation has changed, the allocation was replaced.
#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/resolver.hpp>

#include "timing.hpp"

#include <CLI/CLI.hpp>

namespace {

constexpr std::array<std::size_t, 5> sizes{std::size_t{4} << 10U, std::size_t{64} << 10U,
                                           std::size_t{1} << 20U, std::size_t{16} << 20U,
                                           std::size_t{256} << 20U};

/// The times of a lookup and of an export, in seconds.
struct Figures {
    double look, made;
};

Figures compare(rdmabuf::Allocator& exporter, std::size_t size, int rounds) {
    const rdmabuf::Buffer buffer = exporter.allocate(size);
    const auto known = exporter.find(buffer.address());
    const auto look = [&] {
        const auto found = exporter.find(buffer.address());
        if (!found || found->generation != known->generation) {
            throw std::runtime_error("the allocation has changed");
        }
    };
    const auto make = [&] {
        // NOLINTNEXTLINE(bugprone-unused-raii): it is made and given back
        const rdmabuf::ExportedRange range = exporter.export_range(buffer.address(), size);
    };
    const long looks = timing::times_of(look);
    const long exports = timing::times_of(make);
    std::vector<double> look_times;
    std::vector<double> make_times;
    for (int round = 0; round < rounds; ++round) {
        look_times.push_back(timing::measure(looks, look));
        make_times.push_back(timing::measure(exports, make));
    }
    return {.look = timing::median(std::move(look_times)),
            .made = timing::median(std::move(make_times))};
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app(
        "What an export costs (and giving it back), beside a look at whether the memory is still "
        "the\n"
        "same one, which is what a cache needs. Needs no verbs device.");
    std::string name = "memfd";
    int rounds = 101;
    app.add_option("--exporter", name, "whose memory: cuda, udmabuf, dma_heap, drm, memfd, ...")
        ->capture_default_str();
    app.add_option("--rounds", rounds, "for each median")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    try {
        auto resolver = rdmabuf::Resolver::system();
        resolver.add(rdmabuf::make_memfd_exporter());
        const auto exporter = resolver.allocator(name);
        std::printf("%s, medians of %d rounds\n", name.c_str(), rounds);
        std::printf("%10s %12s %12s %8s\n", "size", "look, usec", "export, usec", "ratio");
        for (const std::size_t size : sizes) {
            const Figures figures = compare(*exporter, size, rounds);
            std::printf("%6zu KiB %12.3f %12.3f %8.1f\n", size / 1024, figures.look * 1e6,
                        figures.made * 1e6, figures.made / figures.look);
            std::fflush(stdout);
        }
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "resolve: %s\n", error.what());
        return 1;
    }
}
