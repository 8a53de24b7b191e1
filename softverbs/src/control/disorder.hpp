// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace softverbs {

/// The kinds of reordering that SOFTVERBS_DISORDER enables. Hardware usually does not reorder in
/// these ways, but no specification forbids it. See README.md.
class Disorder {
  public:
    /// Parses the kinds of reordering to enable: a comma-separated list of "acks", "qps" and
    /// "writes", or "all", optionally followed by ":<seed>". An empty text disables all kinds.
    /// Returns 0. If the text is invalid, returns EINVAL and changes nothing.
    int set(std::string_view text);

    /// Whether softverbs delays acknowledgements and other responses to requests.
    [[nodiscard]] bool acks() const noexcept { return acks_; }
    /// Whether requests of different queue pairs can overtake each other on their way to the
    /// responder.
    [[nodiscard]] bool qps() const noexcept { return qps_; }
    /// Whether softverbs writes the data of RDMA writes to memory with a delay.
    [[nodiscard]] bool writes() const noexcept { return writes_; }
    [[nodiscard]] bool any() const noexcept { return any_; }

    /// Returns the seed of the random delays: the seed in the text of set(), or 1 if the text
    /// contained none.
    [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }

    /// Returns the random delay of the next request, response or write in nanoseconds: 0 with a
    /// probability of one half, otherwise less than 1 millisecond.
    [[nodiscard]] std::uint64_t delay_ns() noexcept;

  private:
    bool acks_ = false;
    bool qps_ = false;
    bool writes_ = false;
    bool any_ = false;         // acks_ || qps_ || writes_
    std::uint64_t random_ = 1; // state of the generator, never 0
    std::uint64_t seed_ = 1;
};

} // namespace softverbs
