// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <atomic>
#include <cerrno>
#include <future>
#include <utility>
#include <vector>

#include <rdmabuf/error.hpp>

#include "exporter_suite.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

constexpr std::size_t workers = 4;
constexpr unsigned rounds = 60;

/// The address of each worker's current buffer, for lookups by another thread.
using Addresses = std::array<std::atomic<std::uintptr_t>, workers>;

/// Allocates, uses and frees buffers. Returns the number of failed checks.
unsigned make_and_free(Allocator& exporter, std::atomic<std::uintptr_t>& published, unsigned seed,
                       bool synced) {
    unsigned wrong = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        const Buffer buffer = exporter.allocate(page_size());
        published = buffer.address();
        const std::vector<std::byte> expected = fill_buffer(buffer, seed + round);
        const auto found = exporter.find(buffer.address() + 1);
        wrong += found && found->base == buffer.address() ? 0 : 1;
        const ExportedRange range = exporter.export_range(buffer.address(), buffer.size());
        wrong += bytes_through(range, synced) == expected ? 0 : 1;
    }
    return wrong;
}

/// Looks up and exports buffers of @p size bytes while other threads free them. Each must be found
/// whole or not at all. Returns the number of failed checks.
unsigned look_up(const Allocator& exporter, const Addresses& addresses, std::size_t size,
                 const std::atomic<bool>& stop) {
    unsigned wrong = 0;
    while (!stop) {
        for (const auto& address : addresses) {
            const auto found = exporter.find(address);
            wrong += !found || found->length == size ? 0 : 1;
            const auto error = error_of([&] {
                const ExportedRange range = exporter.export_range(address, 1);
                wrong += range.fd() >= 0 ? 0 : 1;
            });
            wrong += !error || error->error() == EFAULT ? 0 : 1;
        }
    }
    return wrong;
}

TEST_P(ExporterSuite, ServesThreadsThatAllocateFindExportAndFree) {
    const auto before = open_descriptors();
    const std::size_t size = exporter().allocate(page_size()).size();
    Addresses addresses{};
    std::atomic<bool> stop{false};
    std::vector<std::future<unsigned>> wrong;
    for (std::size_t i = 0; i < workers; ++i) {
        wrong.push_back(std::async(std::launch::async, [&, i] {
            return make_and_free(exporter(), addresses[i], static_cast<unsigned>(i) * rounds,
                                 GetParam().makes_dmabufs);
        }));
    }
    auto reader =
        std::async(std::launch::async, [&] { return look_up(exporter(), addresses, size, stop); });
    for (const auto& maker : wrong) {
        maker.wait();
    }
    stop = true;
    wrong.push_back(std::move(reader));
    for (auto& count : wrong) {
        EXPECT_EQ(count.get(), 0U);
    }
    EXPECT_EQ(open_descriptors(), before);
}

} // namespace
} // namespace rdmabuf::testing
