// SPDX-License-Identifier: BSD-3-Clause
// Measures a hit of RegistrationCache, UCX's cache, and a std::map with a mutex: find the entry,
// read its key, release it. The caches are measured in turn, so that other load of the machine
// affects all of them. The medians are compared.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/protection_domain.hpp>

#include "../callgrind.hpp"
#include "../registration/timing.hpp"
#include "contender.hpp"

#include <CLI/CLI.hpp>

[[gnu::noinline]] std::uint32_t hit_library(Contender& contender, long times) {
    return contender.hit(times, 1);
}
[[gnu::noinline]] std::uint32_t hit_map(Contender& contender, long times) {
    return contender.hit(times, 1);
}
[[gnu::noinline]] std::uint32_t hit_ucx(Contender& contender, long times) {
    return contender.hit(times, 1);
}

namespace {

constexpr std::array<std::uint32_t, 3> sizes{16, 1024, 65536};
constexpr std::array<unsigned, 4> thread_counts{1, 2, 4, 8};
constexpr std::array<const char*, 3> names{"rdmabuf", "ucx", "map"};

/// A mapped address range, in which the pieces of Memory lie.
class Mapping {
  public:
    explicit Mapping(std::uint32_t entries)
        : size_(entries * Memory::stride),
          address_(::mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
        if (address_ == MAP_FAILED) {
            throw std::system_error(errno, std::system_category(), "mmap");
        }
    }
    ~Mapping() { ::munmap(address_, size_); }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    [[nodiscard]] std::uintptr_t address() const noexcept {
        return reinterpret_cast<std::uintptr_t>(address_);
    }

  private:
    std::size_t size_;
    void* address_;
};

/// One cache for each of `names`, with an entry for each piece of Memory; nullptr for UCX in a
/// build without UCX.
class Contenders {
  public:
    Contenders(const rdmabuf::ProtectionDomain& pd, std::uint32_t entries)
        : mapping_(entries), memory_{.base = mapping_.address(), .entries = entries} {
        all_ = {make_library_cache(pd, memory_), make_ucx_cache(memory_), make_map_cache(memory_)};
    }
    [[nodiscard]] Contender* operator[](std::size_t i) const noexcept { return all_[i].get(); }

  private:
    Mapping mapping_;
    Memory memory_;
    std::array<std::unique_ptr<Contender>, names.size()> all_;
};

/// Returns the elapsed time divided by the number of hits of all threads, in seconds. All
/// @p threads run at the same time.
double seconds_per_hit(Contender& contender, unsigned threads, long times) {
    // Each thread reads the clock itself: the thread that runs this function may wake up only after
    // the others have ended.
    std::vector<timing::Clock::time_point> begins(threads);
    std::vector<timing::Clock::time_point> ends(threads);
    std::barrier start(static_cast<std::ptrdiff_t>(threads));
    std::vector<std::jthread> running;
    for (unsigned i = 0; i < threads; ++i) {
        running.emplace_back([&, i] {
            contender.hit(100, i + 1); // the first hit of a thread has more to do
            start.arrive_and_wait();
            begins[i] = timing::Clock::now();
            contender.hit(times, i + 1);
            ends[i] = timing::Clock::now();
        });
    }
    running.clear();
    const auto all = *std::ranges::max_element(ends) - *std::ranges::min_element(begins);
    return std::chrono::duration<double>(all).count() / static_cast<double>(times * threads);
}

void compare_times(const rdmabuf::ProtectionDomain& pd, int rounds, long times) {
    std::printf("nanoseconds for a hit, of all threads together, on %u cores; medians of %d\n",
                std::thread::hardware_concurrency(), rounds);
    std::printf("%8s %8s %10s %10s %10s %12s %12s\n", "entries", "threads", names[0], names[1],
                names[2], "of UCX's", "of map's");
    for (const std::uint32_t entries : sizes) {
        const Contenders contenders(pd, entries);
        for (const unsigned threads : thread_counts) {
            std::array<std::vector<double>, names.size()> seconds;
            for (int round = 0; round < rounds; ++round) {
                for (std::size_t i = 0; i < names.size(); ++i) {
                    if (Contender* const contender = contenders[i]; contender != nullptr) {
                        seconds[i].push_back(seconds_per_hit(*contender, threads, times));
                    }
                }
            }
            std::array<double, names.size()> medians{};
            std::printf("%8u %8u", entries, threads);
            for (std::size_t i = 0; i < names.size(); ++i) {
                medians[i] = seconds[i].empty() ? 0 : timing::median(seconds[i]);
                std::printf(" %10.1f", medians[i] * 1e9);
            }
            std::printf(" %12.2f %12.2f\n", medians[0] / medians[1], medians[0] / medians[2]);
            std::fflush(stdout);
        }
    }
}

/// Executes the hits whose instructions are counted: the program runs itself with --counted under
/// callgrind.
int run_counted(const rdmabuf::ProtectionDomain& pd, const std::string& name, std::uint32_t entries,
                long times) {
    const Contenders contenders(pd, entries);
    if (name == names[0]) {
        hit_library(*contenders[0], times);
    } else if (name == names[1] && contenders[1] != nullptr) {
        hit_ucx(*contenders[1], times);
    } else {
        hit_map(*contenders[2], times);
    }
    return EXIT_SUCCESS;
}

/// Returns the instructions of one hit, without fixed costs: the difference between the counts of
/// two runs, divided by the difference of their numbers of hits.
long instructions(std::size_t i, std::uint32_t size) {
    constexpr std::array<const char*, names.size()> functions{"hit_library", "hit_ucx", "hit_map"};
    const auto counted = [&](long times) {
        return callgrind::count(functions[i], "--counted " + std::string(names[i]) + " --entries " +
                                                  std::to_string(size) + " --times " +
                                                  std::to_string(times));
    };
    constexpr long few = 1000;
    constexpr long many = 3000;
    return (counted(many) - counted(few)) / (many - few);
}

/// Prints the number of instructions for a hit of each cache.
/// @return true if RegistrationCache needs at most @p most instructions for a hit, both with 16 and
///         with 1024 entries
bool compare_instructions(bool with_ucx, long most) {
    std::printf("instructions for a hit\n%8s %10s %10s %10s\n", "entries", names[0], names[1],
                names[2]);
    bool met = true;
    for (const std::uint32_t size : {16U, 1024U}) {
        const long library = instructions(0, size);
        std::printf("%8u %10ld %10ld %10ld%s\n", size, library,
                    with_ucx ? instructions(1, size) : 0, instructions(2, size),
                    library > most ? "   too many" : "");
        std::fflush(stdout);
        met = met && library <= most;
    }
    return met;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app(
        "What a hit of RegistrationCache costs, beside UCX's cache and a map with a mutex.");
    int rounds = 15;
    long times = 100000;
    std::string counted;
    std::uint32_t entries = 16;
    app.add_option("--rounds", rounds, "for each median")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--times", times, "hits of each thread in a round")->capture_default_str();
    bool count = false;
    long most = 130;
    app.add_flag("--instructions", count, "count instructions, with callgrind, instead of time");
    app.add_option("--most", most, "exit with 1 when a hit has more of them")
        ->capture_default_str();
    app.add_option("--counted", counted, "run this one only (callgrind runs this)");
    app.add_option("--entries", entries, "of that one");
    CLI11_PARSE(app, argc, argv);
    try {
        if (count) {
            return compare_instructions(RDMABUF_BENCHMARK_HAVE_UCX, most) ? EXIT_SUCCESS
                                                                          : EXIT_FAILURE;
        }
        const rdmabuf::Context context = rdmabuf::Context::open_first();
        const rdmabuf::ProtectionDomain pd(context);
        if (!counted.empty()) {
            return run_counted(pd, counted, entries, times);
        }
        compare_times(pd, rounds, times);
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "cache: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
