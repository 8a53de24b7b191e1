// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <exception>

#include "connect.hpp"
#include "options.hpp"
#include "report.hpp"
#include "run.hpp"

namespace pingpong {

namespace {

constexpr int exit_failure = 1;
constexpr int exit_usage = 2;

void print(const Options& options, Endpoint& endpoint, const Result& result) {
    const Station& station = endpoint.station();
    const Setting setting{.device = station.context.device_name(),
                          .port = station.port,
                          .gid = station.gid,
                          .origin = station.memory->origin()};
    const std::string text = options.json ? format_json(options, setting, result)
                                          : format_table(options, setting, result);
    std::fputs(text.c_str(), stdout);
}

void run(const Options& options) {
    if (options.mode == Mode::loopback) {
        auto [here, there] = connect_loopback(options);
        print(options, here, run_loopback(here, there, options));
        return;
    }
    if (options.mode == Mode::listen && !options.json) {
        std::fprintf(stderr, "waiting at port %u (%s) for pingpong --connect\n",
                     unsigned{options.tcp_port}, to_string(options.bootstrap));
    }
    Endpoint endpoint =
        options.bootstrap == Bootstrap::tcp ? connect_tcp(options) : connect_rdmacm(options);
    print(options, endpoint, run_end(endpoint, options));
}

int main(std::span<const char* const> arguments) {
    try {
        const auto parsed = parse_options(arguments);
        if (const auto* help = std::get_if<Help>(&parsed)) {
            std::fputs(help->text.c_str(), stdout);
            return 0;
        }
        run(std::get<Options>(parsed));
        return 0;
    } catch (const UsageError& error) {
        std::fprintf(stderr, "pingpong: %s\n(pingpong --help lists all options)\n", error.what());
        return exit_usage;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "pingpong: %s\n", error.what());
        return exit_failure;
    }
}

} // namespace

} // namespace pingpong

int main(int argc, char** argv) {
    return pingpong::main({argv + 1, static_cast<std::size_t>(argc - 1)});
}
