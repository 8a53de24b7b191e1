// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace rdmabuf::transport::detail {

/// A batch of consumed bounce buffers whose receives are not reposted yet. The batch is reposted
/// when it is full or when the completion queues are empty. The credits for these receives are then
/// returned to the peer.
class Refill {
  public:
    static constexpr std::size_t capacity = 8;

    /// @param slots  number of receives of the smaller class (messages or control messages); a
    ///               batch has at most a quarter of them
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
    /// Empties the batch after its receives were reposted.
    /// @return the number of messages and the number of control messages in the batch
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
