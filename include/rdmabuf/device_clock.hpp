// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// A point in time of CLOCK_REALTIME, in nanoseconds.
using WallclockTime = std::chrono::sys_time<std::chrono::nanoseconds>;

/// Converts the timestamps of completions (CompletionBatch::timestamp()) to CLOCK_REALTIME. The
/// timestamps are ticks of a free-running clock of the device. The object stores a pair of readings
/// of both clocks, which synchronize() renews. Copies are independent.
///
/// The error of wallclock() grows with the time since synchronize(), because clocks drift and the
/// device reports its frequency only in kHz: a frequency error of 10 ppm causes an error of 10 us
/// after one second. Call synchronize() as often as the required accuracy demands. Alternatively,
/// create the completion queue with CompletionFields::wallclock. The provider then converts the
/// timestamps.
class RDMABUF_EXPORT DeviceClock {
  public:
    /// Queries the frequency of the device's clock with ibv_query_device_ex(3), and then calls
    /// synchronize().
    /// @throws Error EOPNOTSUPP if the device or its provider does not report the clock; EBADF if
    ///         @p context was closed, released or moved from
    explicit DeviceClock(const Context& context);

    /// Reads the device's clock, in ticks. The read crosses PCIe and takes about 1 us.
    /// @throws Error EOPNOTSUPP if the provider does not report the clock
    [[nodiscard]] std::uint64_t now() const;

    /// Reads the device's clock eight times, each time between two reads of CLOCK_REALTIME, and
    /// keeps the reading that took the least time. Half of this time is the new uncertainty().
    /// @throws Error EOPNOTSUPP if the provider does not report the clock
    void synchronize();
    /// Returns the maximum error of wallclock() for a timestamp taken at the time of the last
    /// synchronize(). For earlier and later timestamps, the clock drift increases this error.
    [[nodiscard]] std::chrono::nanoseconds uncertainty() const noexcept { return uncertainty_; }

    /// Returns the frequency of the device's clock in kHz (ibv_device_attr_ex::hca_core_clock).
    [[nodiscard]] std::uint64_t frequency_khz() const noexcept { return frequency_khz_; }
    /// Returns the mask of the valid bits of a timestamp
    /// (ibv_device_attr_ex::completion_timestamp_mask). The mask is also the largest timestamp;
    /// after this value the clock continues at 0.
    [[nodiscard]] std::uint64_t mask() const noexcept { return mask_; }

    /// Returns the time from the timestamp @p from to the timestamp @p to, both in ticks of the
    /// device's clock. The result is negative if @p to is earlier. The timestamps must differ by
    /// less than half of mask().
    [[nodiscard]] std::chrono::nanoseconds between(std::uint64_t from,
                                                   std::uint64_t to) const noexcept;
    /// Converts a timestamp, in ticks of the device's clock, to CLOCK_REALTIME.
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
