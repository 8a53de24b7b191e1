// SPDX-License-Identifier: BSD-3-Clause
// Measures an endpoint with many channels: memory for each idle channel, the time to connect, and
// the time of progress(). The peers are child processes. Prints a table.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/transport.hpp>

#include <CLI/CLI.hpp>

namespace {

using namespace rdmabuf::transport;
using Clock = std::chrono::steady_clock;

constexpr std::size_t peers = 4;
constexpr std::size_t busy_channels = 8;
constexpr std::size_t message_size = 8;

template <class T>
T value(rdmabuf::Result<T> result) {
    if (!result) {
        throw std::runtime_error(result.message());
    }
    return *std::move(result);
}
void check(std::error_code error) {
    if (error) {
        throw std::system_error(error);
    }
}
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

Endpoint open_endpoint() {
    // The program measures idle channels, so that few buffers suffice.
    return value(Endpoint::open(rdmabuf::Context::open_first(), rdmabuf::Resolver(),
                                {.send_depth = 32, .keep_sockets = false}));
}

/// Connects @p count channels, and answers each message of 8 bytes until @p pipe is closed.
void run_peer(int pipe, std::size_t count) {
    const Endpoint endpoint = open_endpoint();
    std::array<std::byte, Handle::wire_size> bytes{};
    if (::read(pipe, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
        throw std::runtime_error("the measuring process has ended");
    }
    const Handle handle = value(Handle::decode(bytes));
    std::vector<Channel> channels;
    channels.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        channels.push_back(value(endpoint.connect(handle, std::chrono::seconds(60))));
    }
    std::vector<std::uint64_t> memory(count);
    const Memory registered =
        value(endpoint.register_memory(memory.data(), memory.size() * sizeof memory[0]));
    struct Echo {
        Channel* channel;
        std::uint64_t* buffer;
        Request request;
    };
    std::vector<Echo> echoes;
    for (std::size_t i = 0; i < count; ++i) {
        echoes.push_back({&channels[i], &memory[i], {}});
    }
    for (Echo& echo : echoes) {
        check(echo.channel->irecv(registered, echo.buffer, message_size, 1, echo.request, &echo));
    }
    std::array<Completion, 16> completions{};
    char byte = 0;
    while (::recv(pipe, &byte, 1, MSG_DONTWAIT) != 0) {
        const std::size_t done = endpoint.poll_completions(completions);
        for (const Completion& completion : std::span(completions).first(done)) {
            if (completion.error) {
                return; // The measuring process has closed its channels.
            }
            Echo& echo = *static_cast<Echo*>(completion.context);
            Request sent;
            check(echo.channel->isend(registered, echo.buffer, message_size, 1, sent));
            check(
                echo.channel->irecv(registered, echo.buffer, message_size, 1, echo.request, &echo));
        }
        if (done == 0) {
            endpoint.wait(std::chrono::milliseconds(20));
        }
    }
}

struct Figures {
    double connect_us = 0;
    double memory = 0;
    double idle_ns = 0;
    double busy_us = 0;
};

/// Returns the memory of a queue pair with the same options, in bytes: the memory that the device
/// itself needs for a channel. Must be called before this process has used other memory.
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

Figures measure(std::size_t count) {
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
                run_peer(pair[1], share);
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
        const Endpoint endpoint = open_endpoint();
        Listener listener = value(endpoint.listen("127.0.0.1"));
        for (const int socket : sockets) {
            if (::send(socket, listener.handle().bytes().data(), Handle::wire_size, MSG_NOSIGNAL) !=
                static_cast<ssize_t>(Handle::wire_size)) {
                throw std::runtime_error("a peer has ended");
            }
        }
        std::vector<Channel> channels;
        channels.reserve(count);
        channels.push_back(value(listener.accept(std::chrono::seconds(60))));
        const double before = resident_memory();
        auto start = Clock::now();
        while (channels.size() < count) {
            channels.push_back(value(listener.accept(std::chrono::seconds(60))));
        }
        figures.connect_us = microseconds_since(start) / static_cast<double>(count - 1);
        figures.memory = (resident_memory() - before) / static_cast<double>(count - 1);

        constexpr int idle_calls = 200'000;
        start = Clock::now();
        for (int i = 0; i < idle_calls; ++i) {
            endpoint.progress();
        }
        figures.idle_ns = microseconds_since(start) * 1000 / idle_calls;

        std::array<std::uint64_t, busy_channels> memory{};
        const Memory registered = value(endpoint.register_memory(memory.data(), sizeof memory));
        constexpr int rounds = 500;
        const double busy_start = processor_time();
        for (int round = 0; round < rounds; ++round) {
            std::array<Request, busy_channels> receives;
            for (std::size_t i = 0; i < busy_channels; ++i) {
                Channel& channel = channels[i * (count - 1) / busy_channels];
                check(channel.irecv(registered, &memory[i], message_size, 1, receives[i]));
                Request sent;
                check(channel.isend(registered, &memory[i], message_size, 1, sent));
            }
            for (std::size_t i = 0; i < busy_channels; ++i) {
                Channel& channel = channels[i * (count - 1) / busy_channels];
                Completion completion;
                while (!(completion = channel.test(receives[i])).done) {
                    endpoint.wait(std::chrono::milliseconds(20));
                }
                check(completion.error);
            }
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

} // namespace

int main(int argc, char** argv) try {
    std::vector<std::size_t> counts = {100, 1000, 10000};
    CLI::App app("Measures an endpoint with many channels to peers in other processes.");
    app.add_option("--channels", counts, "numbers of channels")
        ->check(CLI::Range(16, 100000))
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    // Handshakes use sockets.
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &files);
    }
    std::printf(
        "| channels | connect, us each | memory, KiB each | idle progress(), ns | 8 busy channels, "
        "us of processor time per round | queue pair alone, KiB |\n"
        "|---:|---:|---:|---:|---:|---:|\n");
    std::fflush(stdout);
    for (std::size_t i = 0; i < 2 * counts.size(); ++i) {
        const std::size_t count = counts[i / 2];
        const bool is_device = i % 2 == 1;
        // A child process measures, so that its memory is not that of an earlier measurement.
        const pid_t child = ::fork();
        if (child == 0) {
            try {
                if (is_device) {
                    std::printf(" %.1f |\n", memory_of_queue_pairs(count) / 1024);
                } else {
                    const Figures figures = measure(count);
                    std::printf("| %zu | %.0f | %.1f | %.0f | %.1f |", count, figures.connect_us,
                                figures.memory / 1024, figures.idle_ns, figures.busy_us);
                }
                std::fflush(stdout);
                std::_Exit(EXIT_SUCCESS);
            } catch (const std::exception& error) {
                std::fprintf(stderr, "transport_scale: %zu channels: %s\n", count, error.what());
                std::_Exit(EXIT_FAILURE);
            }
        }
        int status = 0;
        if (::waitpid(child, &status, 0) != child || status != 0) {
            return EXIT_FAILURE;
        }
    }
    return EXIT_SUCCESS;
} catch (const std::exception& error) {
    std::fprintf(stderr, "transport_scale: %s\n", error.what());
    return EXIT_FAILURE;
}
