// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <rdmabuf/transport/detail/protocol.hpp>

namespace rdmabuf::transport::detail {

/// One class of messages in both directions: how many are under way to the peer, and how many of
/// the peer's were taken in. Counts go round; differences count.
class Credits {
  public:
    /// @param ours    messages that the peer may have under way to here
    /// @param theirs  messages that may be under way to the peer
    Credits(std::uint32_t ours, std::uint32_t theirs) noexcept : ours_(ours), theirs_(theirs) {}

    [[nodiscard]] bool available() const noexcept { return sent_ - peer_took_ < theirs_; }
    void sent() noexcept { ++sent_; }
    [[nodiscard]] std::uint32_t all_sent() const noexcept { return sent_; }
    /// What the peer says it took. @return whether that can be
    [[nodiscard]] bool peer_took(std::uint32_t count) noexcept {
        if (sent_ - count > sent_ - peer_took_) {
            return false;
        }
        peer_took_ = count;
        return true;
    }

    void took(std::uint32_t count) noexcept { took_ += count; }
    /// What to tell the peer.
    [[nodiscard]] std::uint32_t taken() const noexcept { return took_; }
    void told() noexcept { told_ = took_; }
    /// Whether the peer should be told even if there is nothing else to say.
    [[nodiscard]] bool due() const noexcept { return took_ - told_ >= (ours_ + 3) / 4; }

  private:
    std::uint32_t ours_;
    std::uint32_t theirs_;
    std::uint32_t sent_ = 0;
    std::uint32_t peer_took_ = 0;
    std::uint32_t took_ = 0;
    std::uint32_t told_ = 0;
};

} // namespace rdmabuf::transport::detail
