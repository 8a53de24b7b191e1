// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/device_clock.hpp>

namespace rdmabuf {
namespace {

constexpr const char* clock_function = "ibv_query_rt_values_ex";

std::string no_clock(const Context& context) {
    return context.device_name() + " does not report its clock";
}

/// Holds a value of the device clock, the estimated value of CLOCK_REALTIME when the device clock
/// was read, and the duration of the reads.
struct Reading {
    std::uint64_t ticks;
    WallclockTime wallclock;
    std::chrono::nanoseconds duration;
};

Reading read_clocks(const DeviceClock& clock) {
    const auto before = std::chrono::steady_clock::now();
    const auto wallclock_before = std::chrono::system_clock::now();
    const std::uint64_t ticks = clock.now();
    const auto wallclock_after = std::chrono::system_clock::now();
    const auto after = std::chrono::steady_clock::now();
    return {.ticks = ticks,
            .wallclock = wallclock_before + (wallclock_after - wallclock_before) / 2,
            .duration = after - before};
}

} // namespace

DeviceClock::DeviceClock(const Context& context) : context_(context) {
    const ibv_device_attr_ex attributes = context.attributes().native;
    frequency_khz_ = attributes.hca_core_clock;
    mask_ = attributes.completion_timestamp_mask;
    if (frequency_khz_ == 0 || mask_ == 0) {
        throw Error(EOPNOTSUPP, "ibv_query_device_ex", no_clock(context));
    }
    synchronize();
}

std::uint64_t DeviceClock::now() const {
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    const auto hint = [&](int) { return no_clock(context_); };
    detail::check_zero(
        ibv_query_rt_values_ex(detail::native_of(context_, clock_function, "Context"), &values),
        clock_function, hint);
    if ((values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0) {
        throw Error(EOPNOTSUPP, clock_function, no_clock(context_));
    }
    // libmlx5 and libmlx4 store the ticks of the raw clock in tv_nsec, and 0 in tv_sec.
    return static_cast<std::uint64_t>(values.raw_clock.tv_nsec) & mask_;
}

void DeviceClock::synchronize() {
    constexpr int readings = 8;
    Reading best = read_clocks(*this);
    for (int i = 1; i < readings; ++i) {
        if (const Reading reading = read_clocks(*this); reading.duration < best.duration) {
            best = reading;
        }
    }
    synchronized_ticks_ = best.ticks;
    synchronized_at_ = best.wallclock;
    uncertainty_ = best.duration / 2;
}

std::chrono::nanoseconds DeviceClock::between(std::uint64_t from, std::uint64_t to) const noexcept {
    constexpr std::uint64_t ns_per_ms = 1'000'000;
    const std::uint64_t forward = (to - from) & mask_;
    const bool is_later = forward <= mask_ / 2;
    const std::uint64_t ticks = is_later ? forward : (from - to) & mask_;
    // The whole milliseconds and the remaining ticks are converted separately, so that no
    // multiplication overflows.
    const auto ns = static_cast<std::chrono::nanoseconds::rep>(
        ticks / frequency_khz_ * ns_per_ms + ticks % frequency_khz_ * ns_per_ms / frequency_khz_);
    return std::chrono::nanoseconds(is_later ? ns : -ns);
}

} // namespace rdmabuf
