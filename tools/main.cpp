// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rdmabuf/version.hpp>

#include "command.hpp"
#include "command_line.hpp"
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace rdmabuf::tools {
namespace {

constexpr int exit_failure = 1;
constexpr int exit_usage = 2;

constexpr std::array commands{add_doctor, add_perf};

/// Returns the minimum number of characters to insert, delete or replace to turn @p a into @p b.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
        }
    }
    return row.back();
}

/// Checks that @p name is the name of a subcommand.
/// @throws UsageError if no subcommand has this name; the error text suggests a similar name
void check_name(const std::string& name, const std::vector<Command>& all) {
    std::string nearest;
    std::size_t distance = 3; // A name with three or more wrong characters suggests nothing.
    for (const Command& command : all) {
        const std::size_t edits = edit_distance(name, command.app->get_name());
        if (edits == 0) {
            return;
        }
        if (edits < distance) {
            distance = edits;
            nearest = fmt::format("; did you mean '{}'?", command.app->get_name());
        }
    }
    throw UsageError(fmt::format("there is no subcommand '{}'{}", name, nearest));
}

int run(int argc, char** argv) {
    CLI::App program("RDMA on dma-bufs and device memory.", "rdmabuf");
    program.formatter(std::make_shared<HelpFormatter>());
    program.set_help_flag("-h,--help", "Print this text");
    program.set_version_flag("--version", fmt::format("rdmabuf {}", version()),
                             "Print the version");
    program.require_subcommand(1);
    program.footer(
        "rdmabuf SUBCOMMAND --help describes the options of a subcommand.\n"
        "Exit status: 0 success, 1 failure, 2 wrong command line.");

    std::vector<Command> all;
    all.reserve(std::size(commands));
    for (const auto& add : commands) {
        all.push_back(add(program));
    }
    std::string name = "rdmabuf";
    try {
        if (argc > 1 && argv[1][0] != '-') {
            check_name(argv[1], all);
            name += fmt::format(" {}", argv[1]);
        }
        program.parse(argc, argv);
        const auto chosen =
            std::ranges::find_if(all, [](const Command& c) { return c.app->parsed(); });
        chosen->run();
        return chosen->exit_status ? chosen->exit_status() : 0;
    } catch (const CLI::Success& text) { // --help or --version
        program.exit(text);
        return 0;
    } catch (const CLI::ParseError& error) {
        fmt::print(stderr, "{}: {}\n({} --help describes the command line)\n", name, error.what(),
                   name);
        return exit_usage;
    } catch (const UsageError& error) {
        fmt::print(stderr, "{}: {}\n({} --help describes the command line)\n", name, error.what(),
                   name);
        return exit_usage;
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}: {}\n", name, error.what());
        return exit_failure;
    }
}

} // namespace
} // namespace rdmabuf::tools

int main(int argc, char** argv) {
    return rdmabuf::tools::run(argc, argv);
}
