// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace rdmabuf::transport::detail {

/// Receive slots that were read and are to be posted again: together, and not while the program
/// waits for what came in them. Until then the peer does not know of their room.
class Refill {
  public:
    static constexpr std::size_t capacity = 8;

    /// @param slots  of the class with the fewest: no more than a quarter of them is kept back
    explicit Refill(std::uint32_t slots) noexcept
        : most_(std::clamp<std::size_t>(slots / 4, 1, capacity)) {}

    void add_message(std::uint32_t slot) noexcept {
        add(slot);
        ++messages_;
    }
    void add_control(std::uint32_t slot) noexcept {
        add(slot);
        ++control_;
    }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] bool full() const noexcept { return size_ == most_; }

    [[nodiscard]] std::span<const std::uint32_t> slots() const noexcept {
        return {slots_.data(), size_};
    }
    /// Once they are posted. @return how many of each class they were: messages, control
    std::pair<std::uint32_t, std::uint32_t> clear() noexcept {
        size_ = 0;
        return {std::exchange(messages_, 0), std::exchange(control_, 0)};
    }

  private:
    void add(std::uint32_t slot) noexcept { slots_[size_++] = slot; }

    std::size_t most_;
    std::size_t size_ = 0;
    std::array<std::uint32_t, capacity> slots_{};
    std::uint32_t messages_ = 0;
    std::uint32_t control_ = 0;
};

} // namespace rdmabuf::transport::detail
