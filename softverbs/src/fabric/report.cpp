// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/report.hpp"

#include <array>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string_view>

#include "fabric/clock.hpp"

namespace softverbs::fabric {
namespace {

constexpr std::uint64_t quiet_ns = 10 * second_ns;

/// The hash of a line that was printed, and the time of printing in nanoseconds of now_ns().
struct Printed {
    std::size_t hash = 0;
    std::uint64_t at = 0;
};

} // namespace

void report(std::string_view line) noexcept {
    static std::mutex mutex;
    static std::array<Printed, 16> latest{};
    static std::size_t next = 0;
    const std::uint64_t now = now_ns();
    const std::size_t hash = std::hash<std::string_view>{}(line);
    const std::scoped_lock lock(mutex);
    for (const Printed& printed : latest) {
        if (printed.hash == hash && printed.at != 0 && now - printed.at < quiet_ns) {
            return;
        }
    }
    latest[next++ % latest.size()] = {hash, now};
    std::fprintf(stderr, "softverbs: %.*s\n", static_cast<int>(line.size()), line.data());
}

} // namespace softverbs::fabric
