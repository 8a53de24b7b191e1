// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace softverbs {

/// The kinds of reordering that SOFTVERBS_DISORDER enables. Hardware usually does not reorder in
/// these ways, but no specification forbids it. See README.md.
class Disorder {
  public:
    /// Parses a comma-separated list of the kinds "acks", "qps", "writes" or "all", optionally
    /// followed by ":<seed>". An empty text disables all kinds. Returns 0. If the text is invalid,
    /// returns EINVAL and changes nothing.
    int set(std::string_view text);

    /// Whether acknowledgements and other responses are delayed.
    [[nodiscard]] bool acks() const noexcept { return acks_; }
    /// Whether requests of different queue pairs can overtake each other.
    [[nodiscard]] bool qps() const noexcept { return qps_; }
    /// Whether data of RDMA writes is written to memory with a delay.
    [[nodiscard]] bool writes() const noexcept { return writes_; }
    [[nodiscard]] bool any() const noexcept { return any_; }

    /// Returns the seed that the text of set() contained, or 1 if it contained no seed.
    [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }

    /// Returns a random delay in nanoseconds: 0 with a probability of one half, otherwise less than
    /// 1 millisecond.
    [[nodiscard]] std::uint64_t delay_ns() noexcept;

  private:
    bool acks_ = false;
    bool qps_ = false;
    bool writes_ = false;
    bool any_ = false;         // acks_ || qps_ || writes_
    std::uint64_t random_ = 1; // not 0
    std::uint64_t seed_ = 1;
};

} // namespace softverbs
