// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>

namespace pingpong {

/// A line on stderr that says how far a run has come: only on a terminal, only when it takes longer
/// than a second, and gone when the run is over.
class Progress {
  public:
    explicit Progress(std::uint64_t total);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress();

    /// To be called after each transfer, while nobody looks at the watch.
    void update(std::uint64_t done);

  private:
    using Clock = std::chrono::steady_clock;

    std::uint64_t total_;
    bool on_terminal_;
    bool shown_ = false;
    Clock::time_point start_;
    Clock::time_point next_;
};

} // namespace pingpong
