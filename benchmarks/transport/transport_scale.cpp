// SPDX-License-Identifier: BSD-3-Clause
// Measures a process with many connections to peers, which are child processes: the time to
// connect, the memory for each idle connection, and the time of polling. Prints a table, for
// rdmabuf and UCX.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <system_error>
#include <vector>

#include <rdmabuf/rdmabuf.hpp>

#include "scale_system.hpp"

#include <CLI/CLI.hpp>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t peers = 4;

double microseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}
/// Returns the processor time that this process has used, in microseconds.
double processor_time() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}
/// Returns the resident memory of this process in bytes.
double resident_memory() {
    std::ifstream file("/proc/self/statm");
    double pages = 0;
    file >> pages >> pages;
    return pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

struct Figures {
    double connect_us = 0;
    double memory = 0;
    double idle_ns = 0;
    double busy_us = 0;
};

/// Returns the resident memory in bytes that one queue pair with options like those of a channel
/// needs. Must be called in a process that has not freed memory before: the queue pairs would use
/// the freed memory, and the resident memory would not grow.
double memory_of_queue_pairs(std::size_t count) {
    const rdmabuf::Context context = rdmabuf::Context::open_first();
    const rdmabuf::ProtectionDomain pd(context);
    const rdmabuf::CompletionQueue cq(context, {.depth = 4096});
    const rdmabuf::SharedReceiveQueue srq(pd);
    std::vector<rdmabuf::QueuePair> pairs;
    pairs.reserve(count);
    const double before = resident_memory();
    for (std::size_t i = 0; i < count; ++i) {
        rdmabuf::PreparedQueuePair prepared(pd, {.send_cq = cq,
                                                 .recv_cq = cq,
                                                 .max_send_wr = 32,
                                                 .max_recv_wr = 0,
                                                 .max_send_sge = 2,
                                                 .max_inline_data = 128,
                                                 .srq = &srq,
                                                 .extended = rdmabuf::ExtendedInterface::off});
        const rdmabuf::QueuePairAddress address = prepared.address();
        pairs.push_back(std::move(prepared).connect(address));
    }
    return (resident_memory() - before) / static_cast<double>(count);
}

Figures measure(const ScaleFunctions& system, std::size_t count) {
    std::vector<pid_t> children;
    std::vector<int> sockets;
    for (std::size_t i = 0; i < peers; ++i) {
        std::array<int, 2> pair{};
        if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) != 0) {
            throw std::system_error(errno, std::system_category(), "socketpair");
        }
        const std::size_t share = count / peers + (i < count % peers ? 1 : 0);
        const pid_t child = ::fork();
        if (child == 0) {
            ::close(pair[0]);
            for (const int socket : sockets) {
                ::close(socket);
            }
            try {
                system.run_peer(pair[1], share);
            } catch (const std::exception& error) {
                std::fprintf(stderr, "peer: %s\n", error.what());
            }
            std::_Exit(0);
        }
        ::close(pair[1]);
        sockets.push_back(pair[0]);
        children.push_back(child);
    }

    Figures figures;
    {
        const std::unique_ptr<ScaleSystem> measured = system.make(sockets);
        measured->connect(1);
        const double before = resident_memory();
        auto start = Clock::now();
        measured->connect(count);
        figures.connect_us = microseconds_since(start) / static_cast<double>(count - 1);
        figures.memory = (resident_memory() - before) / static_cast<double>(count - 1);

        constexpr int idle_calls = 200'000;
        start = Clock::now();
        for (int i = 0; i < idle_calls; ++i) {
            measured->progress();
        }
        figures.idle_ns = microseconds_since(start) * 1000 / idle_calls;

        constexpr int rounds = 500;
        const double busy_start = processor_time();
        for (int round = 0; round < rounds; ++round) {
            measured->exchange();
        }
        figures.busy_us = (processor_time() - busy_start) / rounds;
        for (const int socket : sockets) {
            ::close(socket);
        }
    }
    for (const pid_t child : children) {
        ::waitpid(child, nullptr, 0);
    }
    return figures;
}

/// Runs @p call in a child process, so that memory that an earlier measurement has used does not
/// affect the result.
/// @return false if the child failed, or did not end within @p limit seconds
template <class Call>
[[nodiscard]] bool run_in_child(unsigned limit, const Call& call) {
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(limit);
        try {
            call();
            std::fflush(stdout);
            std::_Exit(EXIT_SUCCESS);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "transport_scale: %s\n", error.what());
            std::_Exit(EXIT_FAILURE);
        }
    }
    int status = 0;
    return ::waitpid(child, &status, 0) == child && status == 0;
}

} // namespace

int main(int argc, char** argv) try {
    std::vector<std::size_t> counts = {100, 1000, 10000};
    unsigned limit = 300;
    CLI::App app("Measures a process with many connections to peers in other processes.");
    app.add_option("--channels", counts, "numbers of connections")
        ->check(CLI::Range(16, 100000))
        ->capture_default_str();
    app.add_option("--limit", limit, "maximum time of each measurement in seconds")
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    // Each handshake uses a socket, so many connections need a high limit of descriptors.
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &files);
    }
    // Without UCX_TLS, UCX would use shared memory. UCX_RC_VERBS_TX_QUEUE_LEN gives UCX send queues
    // of the same length as those of rdmabuf.
    ::setenv("UCX_TLS", "rc_v", 0);
    ::setenv("UCX_RC_VERBS_TX_QUEUE_LEN", "32", 0);

    std::printf(
        "| connections | system | connect, us each | memory, KiB each | progress() if idle, ns "
        "| 8 busy connections, us of processor time per round |\n"
        "|---:|---|---:|---:|---:|---:|\n");
    bool complete = true;
    for (const std::size_t count : counts) {
        for (const ScaleFunctions& system : {library_scale, ucx_scale}) {
            if (system.make == nullptr) {
                continue;
            }
            std::printf("| %zu | %s | ", count, system.name);
            const bool measured = run_in_child(limit, [&] {
                const Figures figures = measure(system, count);
                std::printf("%.0f | %.1f | %.0f | %.1f |\n", figures.connect_us,
                            figures.memory / 1024, figures.idle_ns, figures.busy_us);
            });
            if (!measured) {
                std::printf("failed, or not finished within %u s | | | |\n", limit);
                complete = false;
            }
        }
        std::printf("| %zu | queue pair alone | | ", count);
        complete &= run_in_child(
            limit, [&] { std::printf("%.1f | | |\n", memory_of_queue_pairs(count) / 1024); });
    }
    return complete ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
    std::fprintf(stderr, "transport_scale: %s\n", error.what());
    return EXIT_FAILURE;
}
