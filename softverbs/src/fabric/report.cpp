// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/report.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <functional>
#include <string_view>

#include "fabric/clock.hpp"

namespace softverbs::fabric {
namespace {

constexpr std::uint64_t quiet_ns = 10 * second_ns;

/// The hash of a line that was printed, and the time of printing in nanoseconds of now_ns().
struct Printed {
    std::atomic<std::size_t> hash = 0;
    std::atomic<std::uint64_t> at = 0;
};

} // namespace

void report(std::string_view line) noexcept {
    // Use no lock: a child process after fork(2) could inherit a lock that is never released. If
    // two threads print at the same time, a line may be printed once more than necessary.
    static constinit std::array<Printed, 16> latest{};
    static constinit std::atomic<std::size_t> next = 0;
    const std::uint64_t now = now_ns();
    const std::size_t hash = std::hash<std::string_view>{}(line);
    for (const Printed& printed : latest) {
        if (printed.hash == hash && printed.at != 0 && now - printed.at < quiet_ns) {
            return;
        }
    }
    Printed& oldest = latest[next++ % latest.size()];
    oldest.hash = hash;
    oldest.at = now;
    std::fprintf(stderr, "softverbs: %.*s\n", static_cast<int>(line.size()), line.data());
}

} // namespace softverbs::fabric
