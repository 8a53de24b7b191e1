// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include <rdmabuf/transport/detail/engine.hpp>

namespace rdmabuf::transport::detail {

/// Between two looks at something that others have to do.
class Patience {
  public:
    /// @param timeout  negative for ever
    explicit Patience(std::chrono::milliseconds timeout) noexcept
        : end_(timeout.count() < 0 ? -1 : now_ns() + std::chrono::nanoseconds(timeout).count()) {}

    /// Lets others work, the more the longer it has been. @return false when the time has run out
    [[nodiscard]] bool wait() noexcept {
        if (++looks_ % looks_between_yields != 0) {
            return end_ != 0;
        }
        std::this_thread::yield();
        return end_ < 0 || now_ns() < end_;
    }

  private:
    static constexpr std::uint32_t looks_between_yields = 64;

    std::int64_t end_;
    std::uint32_t looks_ = 0;
};

} // namespace rdmabuf::transport::detail
