// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace softverbs {

/// The settings of SOFTVERBS_DISORDER, which removes ordering that hardware usually keeps but no
/// specification guarantees. See softverbs.h.
class Disorder {
  public:
    /// Parses a comma-separated list of acks, qps, writes and all, optionally followed by
    /// ":<seed>". An empty text disables all. Returns 0, or EINVAL without a change.
    int set(std::string_view text);

    /// Returns whether acknowledgements and other responses are sent late.
    [[nodiscard]] bool acks() const noexcept { return acks_; }
    /// Returns whether requests of different queue pairs may overtake each other.
    [[nodiscard]] bool qps() const noexcept { return qps_; }
    /// Returns whether the data of RDMA writes becomes visible late.
    [[nodiscard]] bool writes() const noexcept { return writes_; }
    [[nodiscard]] bool any() const noexcept { return any_; }

    /// Returns a random delay in nanoseconds: 0 in half of the calls, otherwise up to one
    /// millisecond.
    [[nodiscard]] std::uint64_t delay_ns() noexcept;

  private:
    bool acks_ = false;
    bool qps_ = false;
    bool writes_ = false;
    bool any_ = false;         // acks_ || qps_ || writes_
    std::uint64_t random_ = 1; // not 0
};

} // namespace softverbs
