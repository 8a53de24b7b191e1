// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace softverbs {

/// Orders that no specification promises and that hardware usually keeps, as SOFTVERBS_DISORDER
/// takes them away. See softverbs.h.
class Disorder {
  public:
    /// A list separated by commas of acks, qps, writes and all, and optionally ":<seed>" behind it.
    /// Empty: none. 0, or EINVAL, and nothing is changed.
    int set(std::string_view text);

    /// Acknowledgements and other responses are sent late.
    [[nodiscard]] bool acks() const noexcept { return acks_; }
    /// Requests of different queue pairs overtake each other.
    [[nodiscard]] bool qps() const noexcept { return qps_; }
    /// The data of RDMA writes becomes visible late.
    [[nodiscard]] bool writes() const noexcept { return writes_; }
    [[nodiscard]] bool any() const noexcept { return acks_ || qps_ || writes_; }

    /// A delay in nanoseconds: none every other time, and otherwise up to a millisecond.
    [[nodiscard]] std::uint64_t delay_ns() noexcept;

  private:
    bool acks_ = false;
    bool qps_ = false;
    bool writes_ = false;
    std::uint64_t random_ = 1; // not 0
};

} // namespace softverbs
