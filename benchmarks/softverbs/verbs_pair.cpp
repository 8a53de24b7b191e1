// SPDX-License-Identifier: BSD-3-Clause
// Measures verbs between two processes, each of which runs on its own processor. Prints one figure
// per line: "<test> <value> <unit>". Runs on any verbs device.
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/rdmabuf.hpp>

#include <CLI/CLI.hpp>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t bulk_size = 1U << 20;
constexpr unsigned queue_depth = 256;
constexpr unsigned signal_every = 32;
constexpr std::uint32_t small = 8;

/// The socket over which the processes exchange addresses and wait for each other.
class Wire {
  public:
    explicit Wire(int fd) : fd_(fd) {}
    template <class T>
    [[nodiscard]] T exchange(const T& ours) const {
        auto bytes = ours.encode();
        if (::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
                static_cast<ssize_t>(bytes.size()) ||
            ::recv(fd_.get(), bytes.data(), bytes.size(), MSG_WAITALL) !=
                static_cast<ssize_t>(bytes.size())) {
            throw std::runtime_error("the other process is gone");
        }
        return T::decode(bytes).value();
    }

  private:
    rdmabuf::UniqueFd fd_;
};

constexpr rdmabuf::Access writable = rdmabuf::Access::local_write | rdmabuf::Access::remote_write;

/// Memory that is registered twice: as memory of this process, and as a dma-buf, which both
/// processes can map. The dma-buf is a memfd, which only softverbs accepts.
class Memory {
  public:
    explicit Memory(const rdmabuf::ProtectionDomain& pd)
        : buffer_(resolver_.allocator("memfd")->allocate(std::size_t{2} * bulk_size)),
          bytes_(buffer_.cpu_access().bytes()),
          own_(pd, bytes_.data(), bytes_.size(), {.access = writable}) {
        try {
            shared_.emplace(pd, resolver_.export_range(buffer_.address(), buffer_.size()),
                            rdmabuf::DmaBufOptions{.access = writable});
        } catch (const rdmabuf::Error& error) {
            std::fprintf(stderr, "verbs_pair: no memory that both can map: %s\n", error.what());
        }
    }
    [[nodiscard]] std::byte* data() const { return bytes_.data(); }
    [[nodiscard]] const rdmabuf::MemoryRegion& own() const { return own_; }
    [[nodiscard]] const rdmabuf::Region& shared() const {
        return shared_ ? static_cast<const rdmabuf::Region&>(*shared_) : own_;
    }
    [[nodiscard]] bool can_share() const { return shared_.has_value(); }

  private:
    rdmabuf::Resolver resolver_{{rdmabuf::make_memfd_exporter()}};
    rdmabuf::Buffer buffer_;
    std::span<std::byte> bytes_;
    rdmabuf::MemoryRegion own_;
    std::optional<rdmabuf::DmaBufMR> shared_;
};

/// One end of the connection, with a connected queue pair.
class End {
  public:
    End(const std::string& device, const Wire& wire)
        : context_(device.empty() ? rdmabuf::Context::open_first()
                                  : rdmabuf::Context::open(device)),
          pd_(context_),
          send_cq_(context_, {.depth = queue_depth}),
          recv_cq_(context_, {.depth = queue_depth}),
          memory_(pd_),
          qp_(connect(wire)),
          remote_own_(wire.exchange(memory_.own().remote())),
          remote_shared_(wire.exchange(memory_.shared().remote())) {}

    [[nodiscard]] const rdmabuf::QueuePair& qp() const { return qp_; }
    [[nodiscard]] const Memory& memory() const { return memory_; }
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::uint32_t length) const {
        return memory_.own().sge(offset, length);
    }
    [[nodiscard]] const rdmabuf::RemoteRegion& remote_own() const { return remote_own_; }
    [[nodiscard]] const rdmabuf::RemoteRegion& remote_shared() const { return remote_shared_; }
    void receive() const { qp_.post_recv(sge(0, small)).throw_if_failed(); }
    /// @return the number of completions
    unsigned poll_send() { return poll(send_cq_); }
    unsigned poll_recv() { return poll(recv_cq_); }
    void wait_send() {
        while (poll_send() == 0) {
        }
    }
    void wait_recv() {
        while (poll_recv() == 0) {
        }
    }

  private:
    [[nodiscard]] rdmabuf::QueuePair connect(const Wire& wire) const {
        auto prepared = rdmabuf::QueuePair::prepare(pd_, {.send_cq = send_cq_,
                                                          .recv_cq = recv_cq_,
                                                          .max_send_wr = queue_depth,
                                                          .max_recv_wr = queue_depth,
                                                          .max_inline_data = small});
        const auto theirs = wire.exchange(prepared.address());
        return std::move(prepared).connect(theirs);
    }
    unsigned poll(const rdmabuf::CompletionQueue& cq) {
        const int count = cq.poll(found_);
        if (count < 0) {
            throw std::runtime_error("polling failed");
        }
        for (int i = 0; i < count; ++i) {
            if (!rdmabuf::succeeded(found_[static_cast<std::size_t>(i)])) {
                throw std::runtime_error(rdmabuf::describe(found_[static_cast<std::size_t>(i)]));
            }
        }
        return static_cast<unsigned>(count);
    }

    rdmabuf::Context context_;
    rdmabuf::ProtectionDomain pd_;
    rdmabuf::CompletionQueue send_cq_;
    rdmabuf::CompletionQueue recv_cq_;
    Memory memory_;
    rdmabuf::QueuePair qp_;
    rdmabuf::RemoteRegion remote_own_;
    rdmabuf::RemoteRegion remote_shared_;
    std::array<rdmabuf::WorkCompletion, signal_every> found_{};
};

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

rdmabuf::SendFlags flags(bool signal) {
    return signal ? rdmabuf::SendFlags::signaled | rdmabuf::SendFlags::inline_data
                  : rdmabuf::SendFlags::inline_data;
}

// Both ends run each test. The argument `first` is true at one of the two ends: the program prints
// the value that this end returns.

/// Returns the time of one direction in nanoseconds.
double send_latency(End& end, bool first, long iterations) {
    const auto send = [&](long i) {
        const bool signal = i % signal_every == 0;
        end.qp().post_send(end.sge(0, small), {.flags = flags(signal)}).throw_if_failed();
        if (signal) {
            end.wait_send();
        }
    };
    const auto start = Clock::now();
    for (long i = 1; i <= iterations; ++i) {
        if (first) {
            send(i);
        }
        end.wait_recv();
        end.receive();
        if (!first) {
            send(i);
        }
    }
    return seconds_since(start) / static_cast<double>(iterations) / 2 * 1e9;
}

/// Returns the time of one direction in nanoseconds. The waiting end reads its memory until the
/// value arrives, and polls its completion queue meanwhile, as transports do.
double write_latency(End& end, bool first, long iterations) {
    std::byte* const memory = end.memory().data();
    const std::atomic_ref<std::uint64_t> arrived(
        *reinterpret_cast<std::uint64_t*>(memory + bulk_size));
    const auto write = [&](long i) {
        std::memcpy(memory, &i, sizeof i);
        const bool signal = i % signal_every == 0;
        end.qp()
            .post_write(end.sge(0, small), end.remote_own().at(bulk_size), {.flags = flags(signal)})
            .throw_if_failed();
        if (signal) {
            end.wait_send();
        }
    };
    const auto start = Clock::now();
    for (long i = 1; i <= iterations; ++i) {
        if (first) {
            write(i);
        }
        while (arrived.load(std::memory_order_acquire) != static_cast<std::uint64_t>(i)) {
            end.poll_send();
        }
        if (!first) {
            write(i);
        }
    }
    return seconds_since(start) / static_cast<double>(iterations) / 2 * 1e9;
}

/// Ends a test in which the second end is passive: it waits for a message of the first end.
void finish(End& end, bool first) {
    if (first) {
        end.qp().post_send(end.sge(0, small)).throw_if_failed();
        end.wait_send();
        return;
    }
    end.wait_recv();
    end.receive();
}

/// Returns the bandwidth in GB/s, with several writes of 1 MiB in flight.
double write_bandwidth(End& end, bool first, long iterations, const rdmabuf::Region& from,
                       const rdmabuf::RemoteRegion& to) {
    constexpr long in_flight = 16;
    const auto start = Clock::now();
    if (first) {
        long posted = 0;
        long done = 0;
        while (done < iterations) {
            for (; posted < iterations && posted - done < in_flight; ++posted) {
                end.qp().post_write(from.sge(0, bulk_size), to.at(bulk_size)).throw_if_failed();
            }
            done += end.poll_send();
        }
    }
    const double seconds = seconds_since(start);
    finish(end, first);
    return static_cast<double>(iterations) * bulk_size / seconds / 1e9;
}
double shared_write_bandwidth(End& end, bool first, long iterations) {
    return write_bandwidth(end, first, iterations, end.memory().shared(), end.remote_shared());
}
double own_write_bandwidth(End& end, bool first, long iterations) {
    return write_bandwidth(end, first, iterations, end.memory().own(), end.remote_own());
}

/// Returns the rate of messages of 8 bytes, in millions per second.
double message_rate(End& end, bool first, long iterations) {
    const auto start = Clock::now();
    if (first) {
        long posted = 0;
        long done = 0;
        while (done < iterations) {
            for (; posted < iterations && posted - done < queue_depth / 2; ++posted) {
                const bool signal = (posted + 1) % signal_every == 0 || posted + 1 == iterations;
                end.qp().post_send(end.sge(0, small), {.flags = flags(signal)}).throw_if_failed();
            }
            done += static_cast<long>(end.poll_send()) * signal_every;
        }
    } else {
        for (long received = 0; received < iterations;) {
            const unsigned count = end.poll_recv();
            for (unsigned i = 0; i < count; ++i) {
                end.receive();
            }
            received += count;
        }
    }
    return static_cast<double>(iterations) / seconds_since(start) / 1e6;
}

/// Returns the bandwidth of memcpy() in one process in GB/s, for comparison.
double copy_bandwidth(End& end, bool first, long iterations) {
    const auto start = Clock::now();
    if (first) {
        for (long i = 0; i < iterations; ++i) {
            std::memcpy(end.memory().data() + bulk_size, end.memory().data(), bulk_size);
            std::atomic_signal_fence(std::memory_order_seq_cst);
        }
    }
    const double seconds = seconds_since(start);
    finish(end, first);
    return static_cast<double>(iterations) * bulk_size / seconds / 1e9;
}

struct Test {
    const char* name;
    const char* unit;
    double (*run)(End&, bool first, long iterations);
    long iterations;
};
constexpr std::array<Test, 6> tests{{
    {"send_latency", "ns", send_latency, 200'000},
    {"write_latency", "ns", write_latency, 200'000},
    {"shared_write_bandwidth", "GB/s", shared_write_bandwidth, 4'000},
    {"own_write_bandwidth", "GB/s", own_write_bandwidth, 4'000},
    {"message_rate", "M/s", message_rate, 1'000'000},
    {"memcpy_bandwidth", "GB/s", copy_bandwidth, 4'000},
}};

void pin(bool first) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(first ? 0 : 1, &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0) {
        std::fprintf(stderr, "verbs_pair: both ends share a processor: expect little\n");
    }
}

void run(const std::string& device, const std::string& only, double scale, int fd, bool first) {
    pin(first);
    const Wire wire(fd);
    End end(device, wire);
    for (unsigned i = 0; i < queue_depth; ++i) {
        end.receive();
    }
    // Waits until both ends have posted their receives.
    static_cast<void>(wire.exchange(rdmabuf::RemoteRegion{}));
    for (const Test& test : tests) {
        if (!only.empty() && only != test.name) {
            continue;
        }
        const long iterations = std::max(
            long{signal_every}, static_cast<long>(static_cast<double>(test.iterations) * scale));
        static_cast<void>(test.run(end, first, std::max(long{signal_every}, iterations / 10)));
        // Clear the word in which write_latency() waits for the value 1.
        std::memset(end.memory().data() + bulk_size, 0, small);
        static_cast<void>(wire.exchange(rdmabuf::RemoteRegion{}));
        const double figure = test.run(end, first, iterations);
        std::memset(end.memory().data() + bulk_size, 0, small);
        static_cast<void>(wire.exchange(rdmabuf::RemoteRegion{}));
        if (first) {
            std::printf("%s %.3f %s\n", test.name, figure, test.unit);
            std::fflush(stdout);
        }
    }
}

int run_reporting(const std::string& device, const std::string& only, double scale, int fd,
                  bool first) {
    try {
        run(device, only, scale, fd, first);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "verbs_pair: %s end: %s\n", first ? "first" : "second", error.what());
        return 1;
    }
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app(
        "What verbs cost between two processes on this machine. The second one is started by "
        "the first.");
    std::string device;
    std::string only;
    double scale = 1;
    unsigned limit = 120;
    std::vector<std::string> names;
    std::ranges::transform(tests, std::back_inserter(names), &Test::name);
    app.add_option("--device", device, "the verbs device; the first one when left out");
    app.add_option("--test", only, "only this test")->check(CLI::IsMember(names));
    app.add_option("--scale", scale, "times as many iterations")->check(CLI::PositiveNumber);
    app.add_option("--limit", limit, "seconds until both give up")->capture_default_str();
    CLI11_PARSE(app, argc, argv);

    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
        std::perror("verbs_pair: socketpair");
        return 1;
    }
    // A child process cannot use devices that its parent has opened, so fork(2) comes first.
    const pid_t child = ::fork();
    if (child < 0) {
        std::perror("verbs_pair: fork");
        return 1;
    }
    ::alarm(limit);
    ::close(pair[child == 0 ? 0 : 1]);
    if (child == 0) {
        return run_reporting(device, only, scale, pair[1], false);
    }
    int status = run_reporting(device, only, scale, pair[0], true);
    if (status != 0) {
        ::kill(child, SIGTERM);
    }
    int child_status = 0;
    ::waitpid(child, &child_status, 0);
    return status != 0 || child_status != 0 ? 1 : 0;
}
