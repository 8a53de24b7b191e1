// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/report.hpp"

#include <time.h>

#include <array>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string_view>

namespace softverbs::fabric {
namespace {

constexpr time_t quiet_seconds = 10;

/// The hash of a line that was printed, and the time of printing, by CLOCK_MONOTONIC in seconds.
struct Printed {
    std::size_t hash = 0;
    time_t at = 0;
};

} // namespace

void report(std::string_view line) noexcept {
    static std::mutex mutex;
    static std::array<Printed, 16> latest{};
    static std::size_t next = 0;
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const std::size_t hash = std::hash<std::string_view>{}(line);
    const std::scoped_lock lock(mutex);
    for (const Printed& printed : latest) {
        if (printed.hash == hash && printed.at != 0 && now.tv_sec - printed.at < quiet_seconds) {
            return;
        }
    }
    latest[next++ % latest.size()] = {hash, now.tv_sec};
    std::fprintf(stderr, "softverbs: %.*s\n", static_cast<int>(line.size()), line.data());
}

} // namespace softverbs::fabric
