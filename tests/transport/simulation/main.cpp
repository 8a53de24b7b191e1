// SPDX-License-Identifier: BSD-3-Clause
// A simulation of two to eight programs that use the transport, in one process, on softverbs with a
// stopped clock. One number, the seed, decides what the programs do, when packets arrive, and what
// fails. So a seed that has found a defect finds it again until the defect is mended.
#include <softverbs/softverbs.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "world.hpp"

namespace rdmabuf::simulation {
namespace {

/// The file to which the process of a run writes its log. The parent process reads it, also if the
/// run has ended by a signal.
int log_file = -1;

constexpr std::uint64_t most_actions = 400;
/// The gate runs the seeds from 1 to this number.
constexpr std::size_t fixed_seeds = 100;

struct Run {
    bool passed = false;
    std::string log;
};

/// Runs the first @p actions actions of a seed in a process of its own, because the state of
/// softverbs belongs to the process.
Run run(std::uint64_t seed, std::uint64_t actions) {
    log_file = ::memfd_create("log", MFD_CLOEXEC);
    const pid_t child = ::fork();
    if (child == 0) {
        // A run that does not end is a defect, too. The longest needs two seconds of processor
        // time, and half a minute with ThreadSanitizer.
        const rlimit limit = {.rlim_cur = 120, .rlim_max = 120};
        ::setrlimit(RLIMIT_CPU, &limit);
        {
            World world(seed);
            world.run(actions);
        }
        expect(softverbs_live(SOFTVERBS_KINDS) == 0, "all objects of verbs are destroyed");
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    Run result;
    result.passed = status == 0;
    std::string bytes(static_cast<std::size_t>(::lseek(log_file, 0, SEEK_END)), '\0');
    const ssize_t size = ::pread(log_file, bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<std::size_t>(size < 0 ? 0 : size));
    result.log = std::move(bytes);
    if (WIFSIGNALED(status)) {
        result.log += std::string("ended by a signal: ") + ::strsignal(WTERMSIG(status)) + "\n";
    }
    ::close(log_file);
    return result;
}

std::string last_line(const std::string& text) {
    const std::size_t end = text.empty() ? 0 : text.size() - 1;
    const std::size_t begin = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
    return text.substr(begin == std::string::npos ? 0 : begin + 1);
}

/// Finds a small number of actions with which a seed fails, by binary search.
std::uint64_t shortest(std::uint64_t seed, std::uint64_t failing) {
    std::uint64_t passing = 0;
    while (passing + 1 < failing) {
        const std::uint64_t middle = passing + (failing - passing) / 2;
        (run(seed, middle).passed ? passing : failing) = middle;
    }
    return failing;
}

bool passes(std::uint64_t seed) {
    const Run first = run(seed, most_actions);
    if (first.passed) {
        return true;
    }
    std::printf("seed %llu: %s", static_cast<unsigned long long>(seed),
                last_line(first.log).c_str());
    std::fflush(stdout);
    const std::uint64_t actions = shortest(seed, most_actions);
    std::printf("  replay: simulation %llu %llu\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(actions));
    std::fflush(stdout);
    return false;
}

int usage() {
    std::fputs(
        "usage: simulation                    runs the fixed seeds\n"
        "       simulation SEED [ACTIONS]     replays a seed, with its log\n"
        "       simulation --seeds FIRST N    runs N seeds\n"
        "       simulation --new N            runs N seeds that nobody has run\n"
        "       simulation --twice SEED       checks that a seed gives the same log twice\n",
        stderr);
    return 2;
}

std::uint64_t number(const char* text) {
    return std::strtoull(text, nullptr, 10);
}

int main(std::span<const char* const> arguments) {
    const std::string_view first = arguments.size() > 1 ? arguments[1] : "";
    std::vector<std::uint64_t> wanted;
    if (first.empty()) {
        wanted.resize(fixed_seeds);
        std::iota(wanted.begin(), wanted.end(), std::uint64_t{1});
    } else if ((first == "--seeds" && arguments.size() == 4) ||
               (first == "--new" && arguments.size() == 3)) {
        std::uint64_t seed = first == "--new"
                                 ? Random(static_cast<std::uint64_t>(::getpid())).next() >> 20U
                                 : number(arguments[2]);
        for (std::uint64_t count = number(arguments.back()); count > 0; --count) {
            wanted.push_back(seed++);
        }
    } else if (first == "--twice" && arguments.size() == 3) {
        const std::uint64_t seed = number(arguments[2]);
        const bool same = run(seed, most_actions).log == run(seed, most_actions).log;
        std::puts(same ? "the logs are equal" : "the logs differ");
        return same ? 0 : 1;
    } else if (first.find_first_not_of("0123456789") == std::string_view::npos &&
               arguments.size() <= 3) {
        const Run result =
            run(number(arguments[1]), arguments.size() == 3 ? number(arguments[2]) : most_actions);
        std::fputs(result.log.c_str(), stdout);
        return result.passed ? 0 : 1;
    } else {
        return usage();
    }
    int status = 0;
    for (const std::uint64_t seed : wanted) {
        status = passes(seed) ? status : 1;
    }
    return status;
}

} // namespace

void log(const std::string& line) {
    const std::string text = line + "\n";
    if (::write(log_file, text.data(), text.size()) < 0) {
        ::abort();
    }
}

void fail(const std::string& rule) {
    log("broken: " + rule);
    ::_exit(1);
}

void expect(bool condition, const char* rule) {
    if (!condition) {
        fail(rule);
    }
}

} // namespace rdmabuf::simulation

int main(int count, char** arguments) {
    return rdmabuf::simulation::main({arguments, static_cast<std::size_t>(count)});
}
