// SPDX-License-Identifier: BSD-3-Clause
// What register_memory() costs beside the C calls that it comes to: resolve, export, register,
// deregister. The two are measured in turn, round by round, so that whatever else the machine does
// meets both; medians are compared. Runs on whatever verbs device there is.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/rdmabuf.hpp>

#include "timing.hpp"

#include <CLI/CLI.hpp>

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
    /// The dma-buf that holds it from its beginning; -1 for host memory.
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

/// The C calls for a dma-buf whose descriptor the program has: one of its own for the registration,
/// as every exporter gives out, and back.
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
        // Each is first in every other round.
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

    /// @return whether every ratio was at most @p target
    bool run(std::size_t largest, double target) {
        std::printf("%s, dma-bufs of %s, medians of %d rounds\n", context_.device_name().c_str(),
                    std::string(allocator_->name()).c_str(), rounds_);
        std::printf("%-8s %10s %12s %12s %8s\n", "path", "size", "C, usec", "rdmabuf", "ratio");
        bool met = true;
        for (const std::size_t size : sizes) {
            if (size <= largest) {
                met = dmabuf(size, target) && met;
                met = host(size, target) && met;
            }
        }
        return met;
    }

  private:
    bool dmabuf(std::size_t size, double target) {
        const rdmabuf::Buffer buffer = allocator_->allocate(size);
        const rdmabuf::ExportedRange range =
            resolver_.export_range(buffer.address(), buffer.size());
        const Memory memory{.address = buffer.address(), .length = size, .fd = range.fd()};
        const Figures figures = compare(
            rounds_, [&] { c_dmabuf(pd_.native(), memory); },
            [&] { with_library(pd_, resolver_, memory); });
        return report("dmabuf", size, figures, target);
    }

    bool host(std::size_t size, double target) {
        const std::unique_ptr<void, Unmap> mapped(
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0),
            Unmap{size});
        if (mapped.get() == MAP_FAILED) {
            failed("mmap");
        }
        const Memory memory{.address = reinterpret_cast<std::uintptr_t>(mapped.get()),
                            .length = size};
        const Figures figures = compare(
            rounds_, [&] { c_host(pd_.native(), memory); },
            [&] { with_library(pd_, resolver_, memory); });
        return report("host", size, figures, target);
    }

    static bool report(const char* path, std::size_t size, const Figures& figures, double target) {
        const double ratio = figures.library / figures.c;
        std::printf("%-8s %6zu KiB %12.2f %12.2f %8.3f %s\n", path, size / 1024, figures.c * 1e6,
                    figures.library * 1e6, ratio, ratio <= target ? "met" : "missed");
        std::fflush(stdout);
        return ratio <= target;
    }

    struct Unmap {
        std::size_t size;
        void operator()(void* address) const noexcept {
            if (address != MAP_FAILED) {
                ::munmap(address, size);
            }
        }
    };

    rdmabuf::Context context_;
    rdmabuf::ProtectionDomain pd_{context_};
    std::shared_ptr<rdmabuf::Allocator> allocator_;
    rdmabuf::Resolver resolver_{{allocator_}};
    int rounds_;
};

} // namespace

int main(int argc, char** argv) {
    CLI::App app(
        "What register_memory() and close() cost beside the C calls for the same memory.\n"
        "Exits with 1 when a ratio is above the target. Memfds stand in for dma-bufs, which\n"
        "softverbs alone takes: preload it, or name an exporter of real ones.");
    std::string device;
    std::string exporter = "memfd";
    int rounds = 301;
    std::size_t largest = sizes.back();
    double target = 1.05;
    app.add_option("--device", device, "the verbs device; the first one when left out");
    app.add_option("--exporter", exporter, "whose dma-bufs: memfd, dma_heap, drm, udmabuf")
        ->capture_default_str();
    app.add_option("--rounds", rounds, "for each median")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--largest", largest, "leave out larger sizes")
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--target", target, "the ratio to stay below")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    try {
        return Benchmark(device, exporter, rounds).run(largest, target) ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "registration: %s\n", error.what());
        return 1;
    }
}
