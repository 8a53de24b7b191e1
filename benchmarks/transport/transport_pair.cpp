// SPDX-License-Identifier: BSD-3-Clause
// Measures the transport between two processes, each of which runs on its own processor. Prints one
// figure per line: "<test> <bytes> <value> <unit>". Runs on any verbs device.
#include <sched.h>
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
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/transport.hpp>

#include "results.hpp"
#include "socket.hpp"

#include <CLI/CLI.hpp>

namespace {

using Clock = std::chrono::steady_clock;
using namespace rdmabuf::transport;

constexpr std::size_t largest = std::size_t{4} << 20U;
constexpr std::size_t in_flight = 32;

/// One end of the channel, with memory for one message in each direction.
class End {
  public:
    End(const std::string& device, const std::string& kind, int socket, bool listens)
        : endpoint_(value(Endpoint::open(
              device.empty() ? rdmabuf::Context::open_first() : rdmabuf::Context::open(device),
              rdmabuf::Resolver({memfds_})))) {
        std::uintptr_t address = 0;
        if (kind == "memfd") {
            buffer_.emplace(memfds_->allocate(2 * largest));
            address = buffer_->address();
        } else {
            host_.resize(2 * largest);
            address = reinterpret_cast<std::uintptr_t>(host_.data());
        }
        data_ = reinterpret_cast<std::byte*>(address);
        memory_ = value(endpoint_.register_memory(data_, 2 * largest));
        connect(socket, listens);
    }

    [[nodiscard]] Request send(std::size_t length) {
        return begin(
            [&](Request& request) { return channel_->isend(memory_, data_, length, 0, request); });
    }
    [[nodiscard]] Request receive(std::size_t length) {
        return begin([&](Request& request) {
            return channel_->irecv(memory_, data_ + largest, length, 0, request);
        });
    }
    [[nodiscard]] Request put(std::size_t length) {
        return begin([&](Request& request) {
            return channel_->iput(memory_, data_, length, theirs_, largest, request);
        });
    }
    [[nodiscard]] Request put_notify(std::size_t length) {
        return begin([&](Request& request) {
            return channel_->iput_notify(memory_, data_, length, theirs_, largest, 1, request);
        });
    }
    void await_notification() {
        while (!channel_->notification()) {
            check(channel_->state());
        }
    }
    void finish(Request request) {
        Completion completion;
        while (!completion.done) {
            completion = channel_->test(request);
        }
        check(completion.error);
    }
    /// Waits until the other end calls this function too.
    void synchronize() {
        const Request received = receive(0);
        finish(send(0));
        finish(received);
    }

  private:
    template <class Begin>
    Request begin(const Begin& call) {
        Request request;
        check(call(request));
        return request;
    }
    void connect(int socket, bool listens) {
        if (listens) {
            auto listener = value(endpoint_.listen("127.0.0.1"));
            send_all(socket, listener.handle().bytes());
            channel_.emplace(value(listener.accept(std::chrono::seconds(10))));
        } else {
            std::array<std::byte, Handle::wire_size> bytes{};
            receive_all(socket, bytes);
            channel_.emplace(
                value(endpoint_.connect(Handle::decode(bytes).value(), std::chrono::seconds(10))));
        }
        const RemoteMemory mine = value(memory_.remote());
        std::array<std::byte, sizeof(RemoteMemory)> bytes{};
        send_all(socket, std::as_bytes(std::span(&mine, 1)));
        receive_all(socket, bytes);
        theirs_ = RemoteMemory::decode(bytes).value();
    }

    std::shared_ptr<rdmabuf::Allocator> memfds_ = rdmabuf::make_memfd_exporter();
    std::optional<rdmabuf::Buffer> buffer_;
    std::vector<std::byte> host_;
    std::byte* data_ = nullptr;
    Endpoint endpoint_;
    Memory memory_;
    RemoteMemory theirs_;
    std::optional<Channel> channel_;
};

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Both ends run each test. The argument `first` is true at one of the two ends: the program prints
// the value that this end returns.

/// Returns the time of one direction in microseconds. The receive of a reply is posted before the
/// message is sent, as in perftest.
double send_latency(End& end, bool first, std::size_t size, long iterations) {
    const auto start = Clock::now();
    Request received = end.receive(size);
    for (long i = 0; i < iterations; ++i) {
        if (!first) {
            end.finish(received);
            received = end.receive(size);
        }
        const Request sent = end.send(size);
        if (first) {
            end.finish(received);
            received = end.receive(size);
        }
        end.finish(sent);
    }
    const double figure = seconds_since(start) / static_cast<double>(iterations) / 2 * 1e6;
    // One receive is still posted: complete it.
    end.finish(end.send(0));
    end.finish(received);
    return figure;
}

/// Returns the time of one direction in microseconds: from the call of put_notify() until the peer
/// has the notification.
double put_latency(End& end, bool first, std::size_t size, long iterations) {
    const auto start = Clock::now();
    for (long i = 0; i < iterations; ++i) {
        if (!first) {
            end.await_notification();
        }
        const Request put = end.put_notify(size);
        if (first) {
            end.await_notification();
        }
        end.finish(put);
    }
    return seconds_since(start) / static_cast<double>(iterations) / 2 * 1e6;
}

/// Keeps `in_flight` requests in flight. @return megabytes (10^6 bytes) per second
template <class Begin>
double stream(End& end, std::size_t size, long iterations, const Begin& begin) {
    std::array<Request, in_flight> requests;
    const auto start = Clock::now();
    for (long i = 0; i < iterations + static_cast<long>(in_flight); ++i) {
        Request& request = requests[static_cast<std::size_t>(i) % in_flight];
        if (i >= static_cast<long>(in_flight)) {
            end.finish(request);
        }
        if (i < iterations) {
            request = begin();
        }
    }
    return static_cast<double>(iterations) * static_cast<double>(size) / seconds_since(start) / 1e6;
}

double send_bandwidth(End& end, bool first, std::size_t size, long iterations) {
    const double figure =
        stream(end, size, iterations, [&] { return first ? end.send(size) : end.receive(size); });
    return figure;
}

double put_bandwidth(End& end, bool first, std::size_t size, long iterations) {
    return first ? stream(end, size, iterations, [&] { return end.put(size); }) : 0;
}

struct Test {
    const char* name;
    const char* unit;
    double (*run)(End&, bool first, std::size_t size, long iterations);
    /// The number of bytes to transfer at each size. It determines the number of iterations.
    double bytes;
    /// Maximum number of iterations.
    long most;
};
constexpr std::array<Test, 4> tests{{
    {"send_latency", "us", send_latency, 512e6, 50'000},
    {"put_latency", "us", put_latency, 512e6, 50'000},
    {"send_bandwidth", "MB/s", send_bandwidth, 4e9, 200'000},
    {"put_bandwidth", "MB/s", put_bandwidth, 4e9, 200'000},
}};

struct Plan {
    std::string device;
    std::string memory = "host";
    std::vector<std::string> only;
    std::vector<std::size_t> sizes = {8, 64, 512, 4096, 8192, 32768, 131072, 1048576, 4194304};
    double scale = 1;
};

void pin(bool first) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(first ? 0 : 1, &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0) {
        std::fprintf(stderr,
                     "transport_pair: both ends share a processor, so that they are slow\n");
    }
}

void run(const Plan& plan, int socket, bool first) {
    pin(first);
    End end(plan.device, plan.memory, socket, first);
    for (const Test& test : tests) {
        if (!plan.only.empty() && std::ranges::find(plan.only, test.name) == plan.only.end()) {
            continue;
        }
        for (const std::size_t size : plan.sizes) {
            const double wanted = test.bytes / static_cast<double>(size) * plan.scale;
            const double most = static_cast<double>(test.most) * plan.scale;
            const long iterations = std::max(20L, static_cast<long>(std::min(wanted, most)));
            static_cast<void>(test.run(end, first, size, std::max(10L, iterations / 10)));
            end.synchronize();
            const double figure = test.run(end, first, size, iterations);
            end.synchronize();
            if (first) {
                std::printf("%s %zu %.3f %s\n", test.name, size, figure, test.unit);
                std::fflush(stdout);
            }
        }
    }
}

int run_reporting(const Plan& plan, int socket, bool first) {
    try {
        run(plan, socket, first);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "transport_pair: %s end: %s\n", first ? "first" : "second",
                     error.what());
        return 1;
    }
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app(
        "Measures the transport between two processes on this machine. The program starts the "
        "second process.");
    Plan plan;
    unsigned limit = 300;
    std::vector<std::string> names;
    std::ranges::transform(tests, std::back_inserter(names), &Test::name);
    app.add_option("--device", plan.device, "the verbs device (default: the first device)");
    app.add_option("--memory", plan.memory, "host, or memfd, which only softverbs can register")
        ->check(CLI::IsMember({"host", "memfd"}))
        ->capture_default_str();
    app.add_option("--test", plan.only, "run only these tests")->check(CLI::IsMember(names));
    app.add_option("--size", plan.sizes, "run only these sizes, in bytes")
        ->check(CLI::Range(std::size_t{1}, largest));
    app.add_option("--scale", plan.scale, "factor of the number of iterations")
        ->check(CLI::PositiveNumber);
    app.add_option("--limit", limit, "maximum run time in seconds")->capture_default_str();
    CLI11_PARSE(app, argc, argv);

    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
        std::perror("transport_pair: socketpair");
        return 1;
    }
    // A child process cannot use devices that its parent has opened, so fork(2) comes first.
    const pid_t child = ::fork();
    if (child < 0) {
        std::perror("transport_pair: fork");
        return 1;
    }
    ::alarm(limit);
    ::close(pair[child == 0 ? 0 : 1]);
    if (child == 0) {
        return run_reporting(plan, pair[1], false);
    }
    const int status = run_reporting(plan, pair[0], true);
    if (status != 0) {
        ::kill(child, SIGTERM);
    }
    int child_status = 0;
    ::waitpid(child, &child_status, 0);
    return status != 0 || child_status != 0 ? 1 : 0;
}
