// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>

namespace rdmabuf::detail {

/// A timeout that began to run when this was made: for operations that take several waits.
class Deadline {
  public:
    /// @param timeout  negative for never
    explicit Deadline(std::chrono::milliseconds timeout) noexcept : timeout_(timeout) {}

    /// What is left of it, rounded up so that nobody spins through the last millisecond; zero when
    /// it has run out, negative for ever. As wait_readable() takes it.
    [[nodiscard]] std::chrono::milliseconds left() const noexcept {
        if (timeout_.count() < 0) {
            return timeout_;
        }
        const auto elapsed = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - start_);
        return std::max(timeout_ - elapsed, std::chrono::milliseconds(0));
    }

    /// Of what is left, one of @p parts equal parts.
    [[nodiscard]] Deadline part(std::size_t parts) const noexcept {
        const std::chrono::milliseconds rest = left();
        return Deadline(
            rest.count() < 0 ? rest : rest / static_cast<std::chrono::milliseconds::rep>(parts));
    }

    /// "500 ms"
    [[nodiscard]] std::string describe() const {
        return timeout_.count() < 0 ? "no limit" : std::to_string(timeout_.count()) + " ms";
    }

  private:
    using Clock = std::chrono::steady_clock;

    std::chrono::milliseconds timeout_;
    Clock::time_point start_ = Clock::now();
};

} // namespace rdmabuf::detail
