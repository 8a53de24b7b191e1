// SPDX-License-Identifier: BSD-3-Clause
// Compares two ways to register many ranges on one, two, four and more NICs: one call of
// register_ranges(), and a loop that calls register_memory() for each range and NIC. Runs on all
// verbs devices, or on the first --nics devices.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/rdmabuf.hpp>

#include "timing.hpp"

#include <CLI/CLI.hpp>

namespace {

using rdmabuf::AddressRange;
using rdmabuf::ProtectionDomain;
using rdmabuf::Registration;

constexpr rdmabuf::RegistrationOptions options{.access = rdmabuf::Access::local_write |
                                                         rdmabuf::Access::remote_write};

struct Parameters {
    std::string exporter = "memfd";
    std::size_t ranges = 64;
    std::size_t size = std::size_t{64} << 10U;
    std::size_t nics = 0;
    unsigned threads_per_nic = 1;
    int rounds = 5;
    double target = 1.3;
    double least_speedup = 0;
};

class Benchmark {
  public:
    explicit Benchmark(const Parameters& parameters)
        : parameters_(parameters),
          allocator_(parameters.exporter == "memfd"
                         ? rdmabuf::make_memfd_exporter()
                         : rdmabuf::Resolver::system().allocator(parameters.exporter)),
          buffer_(allocator_->allocate(parameters.ranges * parameters.size)) {
        for (const rdmabuf::Device& device : rdmabuf::DeviceList()) {
            if (parameters.nics == 0 || pds_.size() < parameters.nics) {
                pds_.emplace_back(rdmabuf::Context(device));
            }
        }
        if (pds_.size() < parameters.nics) {
            throw std::runtime_error("there are only " + std::to_string(pds_.size()) + " devices");
        }
        for (std::size_t i = 0; i < parameters.ranges; ++i) {
            ranges_.push_back(
                {.address = buffer_.address() + i * parameters.size, .length = parameters.size});
        }
    }

    /// @return true if the result for all NICs meets both targets: the time compared with one NIC,
    ///         and the speedup compared with the loop
    bool run() {
        std::vector<Series> all;
        for (std::size_t nics = 1; nics <= pds_.size(); nics = next(nics)) {
            all.push_back({.nics = nics});
        }
        // The series are measured in turn, so that other load of the machine affects all of them.
        for (int round = 0; round < parameters_.rounds; ++round) {
            for (Series& series : all) {
                measure(series);
            }
        }
        std::printf("%zu ranges of %zu KiB on each NIC, medians of %d rounds\n", ranges_.size(),
                    parameters_.size / 1024, parameters_.rounds);
        std::printf("%5s %8s %12s %20s %9s %11s\n", "NICs", "threads", "loop, ms",
                    "register_ranges, ms", "speedup", "to one NIC");
        const double one = timing::median(all.front().parallel);
        double ratio = 1;
        double speedup = 1;
        for (const Series& series : all) {
            const double serial = timing::median(series.serial);
            const double parallel = timing::median(series.parallel);
            ratio = parallel / one;
            speedup = serial / parallel;
            std::printf("%5zu %8u %12.2f %20.2f %9.2f %11.2f\n", series.nics,
                        threads_of(series.nics), serial * 1e3, parallel * 1e3, speedup, ratio);
        }
        const bool met = ratio <= parameters_.target && speedup >= parameters_.least_speedup;
        std::printf(
            "%zu NICs: %.2f times the time of one NIC, %.2f times as fast as the loop: %s\n",
            pds_.size(), ratio, speedup, met ? "met" : "missed");
        return met;
    }

  private:
    /// The times for one number of NICs, in seconds.
    struct Series {
        std::size_t nics = 0;
        std::vector<double> serial = {};
        std::vector<double> parallel = {};
    };

    /// Returns the number of NICs to measure after @p nics: twice as many, and all NICs at the end.
    [[nodiscard]] std::size_t next(std::size_t nics) const {
        return nics < pds_.size() ? std::min(2 * nics, pds_.size()) : nics + 1;
    }
    [[nodiscard]] unsigned threads_of(std::size_t nics) const {
        return static_cast<unsigned>(nics) * parameters_.threads_per_nic;
    }

    void measure(Series& series) const {
        const std::span pds = std::span(pds_).first(series.nics);
        std::vector<Registration> made;
        made.reserve(series.nics * ranges_.size());
        series.serial.push_back(timing::measure(1, [&] {
            for (const ProtectionDomain& pd : pds) {
                for (const AddressRange& range : ranges_) {
                    made.push_back(rdmabuf::register_memory(pd, resolver_, range.address,
                                                            range.length, options));
                }
            }
        }));
        made.clear();
        rdmabuf::RegistrationOptions several = options;
        several.threads = threads_of(series.nics);
        series.parallel.push_back(timing::measure(
            1, [&] { made = rdmabuf::register_ranges(pds, resolver_, ranges_, several); }));
    }

    Parameters parameters_;
    std::shared_ptr<rdmabuf::Allocator> allocator_;
    rdmabuf::Buffer buffer_;
    rdmabuf::Resolver resolver_{{allocator_}};
    std::vector<ProtectionDomain> pds_;
    std::vector<AddressRange> ranges_;
};

} // namespace

int main(int argc, char** argv) {
    CLI::App app(
        "The time of register_ranges() on several NICs, beside a loop of register_memory().\n"
        "Exits with 1 when a target is missed with all NICs. Memfds stand in for dma-bufs, which\n"
        "only softverbs takes: preload it, with SOFTVERBS_DEVICES=4 and\n"
        "SOFTVERBS_REGISTRATION_DELAY=1ms, or name an exporter of real ones.");
    Parameters parameters;
    app.add_option("--exporter", parameters.exporter, "whose dma-bufs: memfd, dma_heap, udmabuf")
        ->capture_default_str();
    app.add_option("--ranges", parameters.ranges, "the number of ranges")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--size", parameters.size, "the size of a range, in whole pages")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--nics", parameters.nics, "the number of devices; all when left out");
    app.add_option("--threads-per-nic", parameters.threads_per_nic)
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--rounds", parameters.rounds, "for each median")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--target", parameters.target, "the maximum of the time to that of one NIC")
        ->capture_default_str();
    app.add_option("--speedup", parameters.least_speedup, "the minimum speedup over the loop")
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    try {
        return Benchmark(parameters).run() ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "several_nics: %s\n", error.what());
        return 1;
    }
}
