// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// The point in time of CLOCK_REALTIME, in nanoseconds.
using WallclockTime = std::chrono::sys_time<std::chrono::nanoseconds>;

/// The free-running clock of a device, which stamps completions (CompletionBatch::timestamp()), and
/// its relation to CLOCK_REALTIME at the time of the last synchronize(). Copies are independent.
///
/// The device reports its frequency in kHz, and clocks drift: an error of 10 ppm makes wallclock()
/// wrong by 10 us after one second. Call synchronize() as often as the program needs, or create the
/// completion queue with CompletionFields::wallclock, where the provider converts.
class RDMABUF_EXPORT DeviceClock {
  public:
    /// Reads the frequency of the clock, and synchronizes.
    /// @throws Error EOPNOTSUPP where the device or its provider does not report its clock; EBADF
    ///         when @p context was closed. ibv_query_rt_values_ex(3).
    explicit DeviceClock(const Context& context);

    /// The current time of the clock in ticks. Takes a read over PCIe, about 1 us.
    /// @throws Error EOPNOTSUPP where the provider cannot
    [[nodiscard]] std::uint64_t now() const;

    /// Reads the clock of the device and CLOCK_REALTIME a few times, and keeps the reading with the
    /// smallest uncertainty.
    /// @throws Error as now()
    void synchronize();
    /// The maximum error of wallclock() for the time of the last synchronize().
    [[nodiscard]] std::chrono::nanoseconds uncertainty() const noexcept { return uncertainty_; }

    /// Ticks per millisecond. ibv_device_attr_ex::hca_core_clock.
    [[nodiscard]] std::uint64_t frequency_khz() const noexcept { return frequency_khz_; }
    /// The valid bits of a timestamp; a timestamp wraps to 0 after this value.
    /// ibv_device_attr_ex::completion_timestamp_mask.
    [[nodiscard]] std::uint64_t mask() const noexcept { return mask_; }

    /// The time from timestamp @p from to timestamp @p to, in ticks of this clock. Negative if @p
    /// to is earlier. Correct if the two are less than half of mask() apart.
    [[nodiscard]] std::chrono::nanoseconds between(std::uint64_t from,
                                                   std::uint64_t to) const noexcept;
    /// The CLOCK_REALTIME of a timestamp.
    [[nodiscard]] WallclockTime wallclock(std::uint64_t timestamp) const noexcept {
        return synchronized_at_ + between(synchronized_ticks_, timestamp);
    }

  private:
    Context context_;
    std::uint64_t frequency_khz_ = 0;
    std::uint64_t mask_ = 0;
    std::uint64_t synchronized_ticks_ = 0;
    WallclockTime synchronized_at_;
    std::chrono::nanoseconds uncertainty_{};
};

} // namespace rdmabuf
