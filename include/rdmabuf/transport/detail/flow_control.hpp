// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace rdmabuf::transport::detail {

/// Limits the memory of the receiver for one class of messages: eager messages or notifications.
/// The class counts the bytes of messages that the receiver's program has not consumed. The
/// counters wrap around; only their differences are used.
class ByteCredits {
  public:
    /// The size in bytes of the queue entry of a message. Each message counts as its length plus
    /// this size.
    static constexpr std::uint32_t overhead = 64;

    /// @param ours    maximum number of bytes that may wait at this end
    /// @param theirs  maximum number of bytes that may wait at the peer
    ByteCredits(std::uint32_t ours, std::uint32_t theirs) noexcept : ours_(ours), theirs_(theirs) {}

    /// Returns true if this end may send a message of @p length bytes: the peer has room for it.
    [[nodiscard]] bool available(std::uint32_t length) const noexcept {
        const std::uint32_t waiting = sent_ - peer_consumed_;
        return length + overhead <= theirs_ - waiting;
    }
    void sent(std::uint32_t length) noexcept { sent_ += length + overhead; }
    /// Stores the total number of bytes that the peer has consumed, as the peer reports it.
    /// @return false if the number is impossible, which is a protocol error
    [[nodiscard]] bool peer_consumed(std::uint32_t count) noexcept {
        if (count == peer_consumed_) {
            return true;
        }
        if (sent_ - count > sent_ - peer_consumed_) {
            return false;
        }
        peer_consumed_ = count;
        return true;
    }

    /// Counts the bytes of a message that has arrived.
    /// @return false if the peer had no credits for the message, which is a protocol error
    [[nodiscard]] bool arrived(std::uint32_t length) noexcept {
        arrived_ += length + overhead;
        return arrived_ - consumed_ <= ours_;
    }
    void consumed(std::uint32_t length) noexcept { consumed_ += length + overhead; }
    /// Returns the total number of bytes that this end has consumed, modulo 2^32. It is sent to the
    /// peer, which computes from it how much it may send.
    [[nodiscard]] std::uint32_t consumed() const noexcept { return consumed_; }
    void reported() noexcept { reported_ = consumed_; }
    /// Returns true if a separate credit message is needed: at least a quarter of the credits has
    /// not been returned to the peer.
    [[nodiscard]] bool due() const noexcept { return consumed_ - reported_ >= ours_ / 4; }

  private:
    std::uint32_t ours_;
    std::uint32_t theirs_;
    std::uint32_t sent_ = 0;
    std::uint32_t peer_consumed_ = 0;
    std::uint32_t arrived_ = 0;
    std::uint32_t consumed_ = 0;
    std::uint32_t reported_ = 0;
};

/// Limits the number of messages whose receipt the peer has not confirmed yet. The limit keeps a
/// fast sender from exhausting the shared receive queue of the peer. It is also the maximum size of
/// SentTags.
class MessageWindow {
  public:
    /// Maximum number of messages in flight to a peer.
    static constexpr std::uint32_t size = 128;

    [[nodiscard]] bool available() const noexcept { return sent_ - peer_received_ < size; }
    /// Returns the total number of messages that this end has sent. The number wraps around.
    [[nodiscard]] std::uint32_t sent() const noexcept { return sent_; }
    [[nodiscard]] std::uint32_t unreceived() const noexcept { return sent_ - peer_received_; }
    void count_sent() noexcept { ++sent_; }
    /// Stores the total number of messages that the peer has received, as the peer reports it.
    /// @param lower  the lower 16 bits of this number
    /// @return false if the number is impossible, which is a protocol error
    [[nodiscard]] bool peer_received(std::uint16_t lower) noexcept {
        if (lower == static_cast<std::uint16_t>(peer_received_)) {
            return true;
        }
        const auto more =
            static_cast<std::uint16_t>(lower - static_cast<std::uint16_t>(peer_received_));
        if (more > sent_ - peer_received_) {
            return false;
        }
        peer_received_ += more;
        return true;
    }

    void count_received() noexcept { ++received_; }
    /// Returns the lower 16 bits of the total number of received messages. This number is sent to
    /// the peer.
    [[nodiscard]] std::uint16_t received() const noexcept {
        return static_cast<std::uint16_t>(received_);
    }
    void reported() noexcept { reported_ = received_; }
    /// Returns true if a separate credit message is needed: at least size / 4 messages have arrived
    /// since the peer was last informed.
    [[nodiscard]] bool due() const noexcept { return received_ - reported_ >= size / 4; }

  private:
    std::uint32_t sent_ = 0;
    std::uint32_t peer_received_ = 0;
    std::uint32_t received_ = 0;
    std::uint32_t reported_ = 0;
};

} // namespace rdmabuf::transport::detail
