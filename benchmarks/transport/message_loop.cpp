// SPDX-License-Identifier: BSD-3-Clause
// Exchanges messages between two ends in this process. benchmarks/transport/instructions counts the
// instructions of measured_messages() by callgrind.
#include "message_loop.hpp"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <CLI/CLI.hpp>

extern "C" {
/// The function whose instructions are counted.
[[gnu::noinline]] void measured_messages(MessageLoop* loop, std::size_t size, long count) {
    loop->run(size, count);
}
}

int main(int argc, char** argv) try {
    std::string system = "rdmabuf";
    std::size_t size = 8;
    long count = 1000;
    CLI::App app("Exchanges messages between two ends of one process.");
    app.add_option("--system", system,
                   "rdmabuf, ucx; list or prepared-list: blocks of iput_list() instead of messages")
        ->check(CLI::IsMember({"rdmabuf", "ucx", "list", "prepared-list"}))
        ->capture_default_str();
    app.add_option("--size", size, "length of a message in bytes")->capture_default_str();
    app.add_option("--count", count, "number of messages")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);

    // The loop is never destroyed: its destruction is not measured, and the destruction of UCX
    // endpoints would need their peers.
    MessageLoop* const loop =
        (system == "ucx"       ? make_ucx_loop(size)
         : system == "rdmabuf" ? make_library_loop(size)
                               : make_list_loop(size, system == "prepared-list"))
            .release();
    loop->run(size, 1000); // Connections, pools and caches are then in their steady state.
    measured_messages(loop, size, count);
    std::printf("%ld messages of %zu bytes\n", count, size);
    std::fflush(stdout);
    std::_Exit(EXIT_SUCCESS);
} catch (const std::exception& error) {
    std::fprintf(stderr, "message_loop: %s\n", error.what());
    return EXIT_FAILURE;
}
