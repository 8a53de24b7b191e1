// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <rdmabuf/transport/detail/protocol.hpp>

namespace rdmabuf::transport::detail {

/// The credits of one message class (messages or control messages) in both directions. One counter
/// counts the messages that are sent to the peer; another counts the consumed messages of the peer.
/// The counters wrap around; only their differences are used.
class Credits {
  public:
    /// @param ours    maximum number of messages in flight to this end
    /// @param theirs  maximum number of messages in flight to the peer
    Credits(std::uint32_t ours, std::uint32_t theirs) noexcept : ours_(ours), theirs_(theirs) {}

    [[nodiscard]] bool available() const noexcept { return sent_ - peer_took_ < theirs_; }
    void sent() noexcept { ++sent_; }
    [[nodiscard]] std::uint32_t all_sent() const noexcept { return sent_; }
    /// Sets the total number of messages that the peer reports as consumed.
    /// @return false if the number is impossible, which is a protocol error
    [[nodiscard]] bool peer_took(std::uint32_t count) noexcept {
        if (sent_ - count > sent_ - peer_took_) {
            return false;
        }
        peer_took_ = count;
        return true;
    }

    void took(std::uint32_t count) noexcept { took_ += count; }
    /// Returns the total number of consumed messages of the peer. This number is reported to the
    /// peer.
    [[nodiscard]] std::uint32_t taken() const noexcept { return took_; }
    void told() noexcept { told_ = took_; }
    /// Returns true if at least a quarter of the credits was not returned to the peer yet, so that
    /// a separate credit message is needed.
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
