// SPDX-License-Identifier: BSD-3-Clause
// Compares register_memory() and close() with the C calls that they make: duplicating the
// descriptor of the dma-buf, if there is one, registering and deregistering. The two are timed in
// turn, so that the other load of the machine affects both, and the medians are compared. With
// --instructions, callgrind counts the instructions of both.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/rdmabuf.hpp>

#include "../callgrind.hpp"
#include "timing.hpp"

#include <CLI/CLI.hpp>

extern "C" {
/// The function whose instructions are counted.
[[gnu::noinline]] void measured_registrations(const std::function<void()>* registration,
                                              long count) {
    for (long i = 0; i < count; ++i) {
        (*registration)();
    }
}
}

namespace {

using timing::measure;
using timing::median;
using timing::times_of;

constexpr std::array<std::size_t, 9> sizes{
    std::size_t{4} << 10U,   std::size_t{16} << 10U, std::size_t{64} << 10U,
    std::size_t{256} << 10U, std::size_t{1} << 20U,  std::size_t{4} << 20U,
    std::size_t{16} << 20U,  std::size_t{64} << 20U, std::size_t{256} << 20U};

constexpr auto access_flags = rdmabuf::Access::local_write | rdmabuf::Access::remote_write;
constexpr int c_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

struct Memory {
    std::uintptr_t address = 0;
    std::size_t length = 0;
    /// The file descriptor of a dma-buf that contains the memory, beginning at offset 0; -1 for
    /// host memory.
    int fd = -1;
};

[[noreturn]] void failed(const char* function) {
    throw std::system_error(errno, std::system_category(), function);
}

void deregister(ibv_mr* mr) {
    if (const int error = ibv_dereg_mr(mr); error != 0) {
        errno = error;
        failed("ibv_dereg_mr");
    }
}

/// The C calls that register and deregister a dma-buf. They include the duplication of the
/// descriptor, because register_memory() also gets a new descriptor from the exporter for each
/// registration.
void c_dmabuf(ibv_pd* pd, const Memory& memory) {
    const int fd = ::fcntl(memory.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        failed("fcntl");
    }
    ibv_mr* const mr = ibv_reg_dmabuf_mr(pd, 0, memory.length, memory.address, fd, c_access);
    if (mr == nullptr) {
        failed("ibv_reg_dmabuf_mr");
    }
    ::close(fd);
    deregister(mr);
}

void c_host(ibv_pd* pd, const Memory& memory) {
    ibv_mr* const mr = ibv_reg_mr_iova2(pd, reinterpret_cast<void*>(memory.address), memory.length,
                                        memory.address, c_access);
    if (mr == nullptr) {
        failed("ibv_reg_mr");
    }
    deregister(mr);
}

void with_library(const rdmabuf::ProtectionDomain& pd, const rdmabuf::Resolver& resolver,
                  const Memory& memory) {
    rdmabuf::register_memory(pd, resolver, memory.address, memory.length, {.access = access_flags})
        .close();
}

struct Figures {
    double c, library;
};

template <class C, class Library>
Figures compare(int rounds, const C& c, const Library& library) {
    const long times = times_of(c);
    std::vector<double> c_times;
    std::vector<double> library_times;
    for (int round = 0; round < rounds; ++round) {
        // Alternate the order, so that neither is always measured first.
        if (round % 2 == 0) {
            c_times.push_back(measure(times, c));
            library_times.push_back(measure(times, library));
        } else {
            library_times.push_back(measure(times, library));
            c_times.push_back(measure(times, c));
        }
    }
    return {.c = median(std::move(c_times)), .library = median(std::move(library_times))};
}

class Benchmark {
  public:
    Benchmark(const std::string& device, const std::string& exporter, int rounds)
        : context_(device.empty() ? rdmabuf::Context::open_first()
                                  : rdmabuf::Context::open(device)),
          allocator_(exporter == "memfd" ? rdmabuf::make_memfd_exporter()
                                         : rdmabuf::Resolver::system().allocator(exporter)),
          rounds_(rounds) {}

    /// Makes the registrations whose instructions callgrind counts.
    /// @param contender  `dmabuf c`, `dmabuf library`, `host c` or `host library`
    void run_counted(const std::string& contender) const {
        constexpr long warm_up = 10;
        const Contenders contenders =
            contender.starts_with("dmabuf") ? dmabuf(sizes[0]) : host(sizes[0]);
        const std::function<void()>& call =
            contender.ends_with(" c") ? contenders.c : contenders.library;
        for (long i = 0; i < warm_up; ++i) {
            call();
        }
        measured_registrations(&call, counted);
    }

    /// @return true if, for each path and size, the library takes at most @p target times as long
    ///         as the C calls
    [[nodiscard]] bool run(std::size_t largest, double target) const {
        std::printf("%s, dma-bufs of %s, medians of %d rounds\n", context_.device_name().c_str(),
                    std::string(allocator_->name()).c_str(), rounds_);
        std::printf("%-8s %10s %12s %12s %8s\n", "path", "size", "C, usec", "rdmabuf", "ratio");
        bool met = true;
        for (const std::size_t size : sizes) {
            if (size <= largest) {
                for (const bool is_host : {false, true}) {
                    const Contenders contenders = is_host ? host(size) : dmabuf(size);
                    const Figures figures = compare(rounds_, contenders.c, contenders.library);
                    met = report(is_host ? "host" : "dmabuf", size, figures, target) && met;
                }
            }
        }
        return met;
    }

    /// The number of registrations that callgrind counts.
    static constexpr long counted = 100;

  private:
    struct Unmap {
        std::size_t size;
        void operator()(void* address) const noexcept {
            if (address != MAP_FAILED) {
                ::munmap(address, size);
            }
        }
    };
    /// The two functions that are compared, and the memory that they register.
    struct Contenders {
        std::shared_ptr<void> memory;
        std::function<void()> c, library;
    };

    [[nodiscard]] Contenders dmabuf(std::size_t size) const {
        struct Exported {
            rdmabuf::Buffer buffer;
            rdmabuf::ExportedRange range;
        };
        rdmabuf::Buffer buffer = allocator_->allocate(size);
        rdmabuf::ExportedRange range = resolver_.export_range(buffer.address(), buffer.size());
        const Memory memory{.address = buffer.address(), .length = size, .fd = range.fd()};
        return {.memory = std::make_shared<Exported>(std::move(buffer), std::move(range)),
                .c = [this, memory] { c_dmabuf(pd_.native(), memory); },
                .library = [this, memory] { with_library(pd_, resolver_, memory); }};
    }
    [[nodiscard]] Contenders host(std::size_t size) const {
        const std::shared_ptr<void> mapped(
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0),
            Unmap{size});
        if (mapped.get() == MAP_FAILED) {
            failed("mmap");
        }
        const Memory memory{.address = reinterpret_cast<std::uintptr_t>(mapped.get()),
                            .length = size};
        return {.memory = mapped,
                .c = [this, memory] { c_host(pd_.native(), memory); },
                .library = [this, memory] { with_library(pd_, resolver_, memory); }};
    }

    static bool report(const char* path, std::size_t size, const Figures& figures, double target) {
        const double ratio = figures.library / figures.c;
        std::printf("%-8s %6zu KiB %12.2f %12.2f %8.3f %s\n", path, size / 1024, figures.c * 1e6,
                    figures.library * 1e6, ratio, ratio <= target ? "met" : "missed");
        std::fflush(stdout);
        return ratio <= target;
    }

    rdmabuf::Context context_;
    rdmabuf::ProtectionDomain pd_{context_};
    std::shared_ptr<rdmabuf::Allocator> allocator_;
    rdmabuf::Resolver resolver_{{allocator_}};
    int rounds_;
};

/// Prints the instructions of the C calls and of the library for the smallest size.
void compare_instructions(const std::string& device, const std::string& exporter) {
    std::printf("%-8s %10s %10s %10s\n", "path", "C", "rdmabuf", "added");
    for (const char* const path : {"dmabuf", "host"}) {
        const auto count = [&](const char* contender) {
            return callgrind::count("measured_registrations",
                                    "--exporter '" + exporter + "'" +
                                        (device.empty() ? "" : " --device '" + device + "'") +
                                        " --counted '" + path + " " + contender + "'") /
                   Benchmark::counted;
        };
        const long c = count("c");
        const long library = count("library");
        std::printf("%-8s %10ld %10ld %10ld\n", path, c, library, library - c);
        std::fflush(stdout);
    }
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app(
        "Compares register_memory() and close() with the C calls for the same memory.\n"
        "The exit status is 1 if a ratio is above the target. The default exporter makes memfds,\n"
        "which only softverbs accepts as dma-bufs: preload softverbs, or name another exporter.");
    std::string device;
    std::string exporter = "memfd";
    int rounds = 301;
    std::size_t largest = sizes.back();
    double target = 1.05;
    bool instructions = false;
    std::string contender;
    app.add_option("--device", device, "the verbs device; default: the first one");
    app.add_option("--exporter", exporter,
                   "the exporter of the dma-bufs: memfd, dma_heap, drm, udmabuf")
        ->capture_default_str();
    app.add_option("--rounds", rounds, "the number of measurements for each median")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--largest", largest, "the largest size")->transform(CLI::AsSizeValue(false));
    app.add_option("--target", target, "the largest ratio that is accepted")->capture_default_str();
    app.add_flag("--instructions", instructions, "count instructions with callgrind, not time");
    app.add_option("--counted", contender)->group(""); // for the runs under callgrind
    CLI11_PARSE(app, argc, argv);
    try {
        if (instructions) {
            compare_instructions(device, exporter);
            return 0;
        }
        const Benchmark benchmark(device, exporter, rounds);
        if (!contender.empty()) {
            benchmark.run_counted(contender);
            return 0;
        }
        return benchmark.run(largest, target) ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "registration: %s\n", error.what());
        return 1;
    }
}
