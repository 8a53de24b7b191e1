// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <limits>

#include "command_line.hpp"
#include "support/units.hpp"

namespace pingpong {

namespace {

Mode choose_mode(const CommandLine& line) {
    const bool connect = line.has("--connect");
    const int chosen =
        static_cast<int>(line.listen) + static_cast<int>(line.loopback) + static_cast<int>(connect);
    if (chosen != 1) {
        throw UsageError(std::string(chosen == 0 ? "say which end this is"
                                                 : "this can be only one of the ends") +
                         ": --listen, --connect HOST, or --loopback for both in one process");
    }
    if (line.loopback) {
        return Mode::loopback;
    }
    return connect ? Mode::connect : Mode::listen;
}

void check_combinations(const Options& options, const CommandLine& line) {
    examples::refuse_if(
        options.mode == Mode::loopback, line.given, {"--bootstrap", "--tcp-port"},
        "is about how two processes meet, and with --loopback there is one: leave it out");
    examples::check_memory_options(options.memory, line.given);
    examples::refuse_if(
        options.mode != Mode::loopback && options.bootstrap == Bootstrap::rdmacm, line.given,
        {"--port", "--gid-index"},
        "cannot be chosen with --bootstrap rdmacm, where the IP address decides: leave it "
        "out, or use --bootstrap tcp");
}

std::uint64_t choose_size(const std::string& given, Verb verb) {
    if (given.empty()) {
        return is_atomic(verb) ? atomic_size : Options{}.size;
    }
    const auto size = examples::parse_size(given);
    if (!size) {
        throw UsageError("--size " + given +
                         " is no number of bytes: write 8, 64K, 1M or 2G (powers of 1024), not 0");
    }
    if (is_atomic(verb) && *size != atomic_size) {
        throw UsageError(std::string("--verb ") + to_string(verb) +
                         " works on 8 bytes: leave out --size " + given + ", or say --size 8");
    }
    if (*size > std::uint64_t{1} << 31) {
        throw UsageError("--size " + given + " is more than a message can carry, which is 2G");
    }
    return *size;
}

} // namespace

const char* to_string(Bootstrap bootstrap) noexcept {
    return examples::name_of<Bootstrap>(bootstrap, bootstraps);
}

std::variant<Options, Help> parse_options(std::span<const char* const> arguments) {
    const auto read = read_command_line(arguments);
    if (const auto* help = std::get_if<Help>(&read)) {
        return *help;
    }
    const auto& line = std::get<CommandLine>(read);
    Options options = line.options;
    options.mode = choose_mode(line);
    options.size = choose_size(line.size, options.verb);
    options.timeout = std::chrono::seconds(line.timeout_seconds);
    if (!line.has("--warmup")) {
        options.warmup = (options.iterations + 9) / 10;
    }
    check_combinations(options, line);
    return options;
}

} // namespace pingpong
