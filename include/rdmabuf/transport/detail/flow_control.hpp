// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <rdmabuf/transport/detail/clock.hpp>

namespace rdmabuf::transport::detail {

/// Flow control by credits in bytes, for eager messages or for notifications. Limits the total size
/// of the messages that have arrived and that the receiving program has not consumed yet. The
/// counters wrap around; only their differences are used.
class ByteCredits {
  public:
    /// Each message counts as its length plus this number of bytes, because the object that stores
    /// the message needs memory, too.
    static constexpr std::uint32_t overhead = 64;

    /// @param ours    maximum number of bytes that this end stores until its program consumes them
    /// @param theirs  maximum number of bytes that the peer stores until its program consumes them
    ByteCredits(std::uint32_t ours, std::uint32_t theirs) noexcept
        : theirs_(theirs),
          peer_room_(theirs),
          room_(ours),
          almost_quarter_(std::int64_t{ours / 4} - 1) {}

    /// Returns true if the peer has room for a message of @p length bytes, so that this end may
    /// send it.
    [[nodiscard]] bool available(std::uint32_t length) const noexcept {
        return length + overhead <= peer_room_;
    }
    void sent(std::uint32_t length) noexcept { peer_room_ -= length + overhead; }
    /// Returns how many messages of up to @p length bytes the peer has room for.
    [[nodiscard]] std::uint32_t messages(std::uint32_t length) const noexcept {
        return peer_room_ / (length + overhead);
    }
    /// Returns the total number of bytes that the peer has consumed, as the peer last reported it.
    [[nodiscard]] std::uint32_t peer_consumed() const noexcept { return peer_consumed_; }
    /// Stores the total number of bytes that the peer has consumed, as the peer reports it.
    /// @return false if the number is impossible, which is a protocol error
    [[nodiscard]] bool peer_consumed(std::uint32_t count) noexcept {
        if (count == peer_consumed_) {
            return true;
        }
        const std::uint32_t more = count - peer_consumed_;
        if (more > theirs_ - peer_room_) {
            return false;
        }
        peer_room_ += more;
        peer_consumed_ = count;
        return true;
    }

    /// Returns true if this end has room for a message of @p length bytes, so that the peer may
    /// send it.
    [[nodiscard]] bool has_room(std::uint32_t length) const noexcept { return length < room(); }
    /// Returns the length of the longest message for which this end has room, plus 1; 0 if there is
    /// no room for any message.
    [[nodiscard]] std::uint32_t room() const noexcept {
        return room_ < overhead ? 0 : room_ - overhead + 1;
    }
    /// Counts a message of @p length bytes that has arrived and that the program has not consumed
    /// yet.
    /// @return false if the peer had no credits for the message, which is a protocol error
    [[nodiscard]] bool arrived(std::uint32_t length) noexcept {
        if (!has_room(length)) {
            return false;
        }
        waits(length);
        return true;
    }
    /// Counts a message of @p length bytes that has arrived, as arrived() does, but without a
    /// check: the caller must have checked has_room().
    void waits(std::uint32_t length) noexcept { room_ -= length + overhead; }
    /// Counts a message as consumed that arrived() or waits() has counted. This end then has room
    /// for further messages.
    void consumed(std::uint32_t length) noexcept {
        room_ += length + overhead;
        consumed_at_once(length);
    }
    /// Counts a message of @p length bytes that the program consumes as soon as it arrives.
    /// has_room() must be true for the message.
    void consumed_at_once(std::uint32_t length) noexcept {
        consumed_ += length + overhead;
        until_due_ -= length + overhead;
    }
    /// Returns the total number of bytes that this end has consumed, modulo 2^32. From this number,
    /// the peer computes how many bytes it may send.
    [[nodiscard]] std::uint32_t consumed() const noexcept { return consumed_; }
    void reported() noexcept { until_due_ = almost_quarter_; }
    /// Returns true if a separate credit message is needed: since this end last returned credits,
    /// it has consumed at least a quarter of the bytes that it can store.
    [[nodiscard]] bool due() const noexcept { return until_due_ < 0; }

  private:
    std::uint32_t theirs_;
    /// The number of bytes that this end may send before the peer returns further credits.
    std::uint32_t peer_room_;
    std::uint32_t peer_consumed_ = test_first_count;
    /// The number of bytes for which this end still has room.
    std::uint32_t room_;
    std::uint32_t consumed_ = test_first_count;
    /// The value at which `until_due_` starts: a quarter of the bytes that this end can store,
    /// minus 1. `until_due_` is therefore negative after a quarter was consumed.
    std::int64_t almost_quarter_;
    /// The number of bytes that this end may still consume before it must send a separate credit
    /// message; negative if it must send one.
    std::int64_t until_due_ = almost_quarter_;
};

/// Limits the number of messages that this end has sent and whose receipt the peer has not
/// confirmed yet. Without this limit, a fast sender could exhaust the shared receive queue of the
/// peer. SentTags stores the tags of the last `size` messages.
class MessageWindow {
  public:
    /// Maximum number of messages that were sent and whose receipt the peer has not confirmed.
    static constexpr std::uint32_t size = 128;

    [[nodiscard]] bool available() const noexcept { return left() != 0; }
    /// Returns how many messages this end may send before it must wait for a confirmation of the
    /// peer.
    [[nodiscard]] std::uint32_t left() const noexcept { return size - unreceived(); }
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

    void count_received() noexcept {
        ++received_;
        --until_due_;
    }
    /// Returns the lower 16 bits of the total number of messages that this end has received. Each
    /// message to the peer contains this number.
    [[nodiscard]] std::uint16_t received() const noexcept {
        return static_cast<std::uint16_t>(received_);
    }
    void reported() noexcept { until_due_ = size / 4 - 1; }
    /// Returns true if a separate credit message is needed: a quarter of the window has arrived
    /// since this end last sent the number received() to the peer.
    [[nodiscard]] bool due() const noexcept { return until_due_ < 0; }

  private:
    std::uint32_t sent_ = test_first_count;
    std::uint32_t peer_received_ = test_first_count;
    std::uint32_t received_ = test_first_count;
    /// The number of messages that this end may still receive before it must send a separate credit
    /// message; negative if it must send one.
    std::int64_t until_due_ = size / 4 - 1;
};

/// Limits for the most frequent operations of a channel. Within its limit, an operation can take a
/// short path, which does not check the state of the channel. Above the limit, it takes a longer
/// path, which does. A failure of the channel sets all limits to 0.
struct FastLimits {
    /// The number of short messages that may be sent on the short path. Set after a short message
    /// has taken the longer path. Each work request on the first queue pair decrements it.
    std::uint32_t sends = 0;
    /// An eager message that has arrived takes the short path if it returns no new credits and its
    /// data is shorter than this number of bytes.
    std::uint32_t arrivals = 0;
    /// A receive takes the longer path if at least this many requests of the channel are in flight.
    std::uint32_t requests = 0;
};

} // namespace rdmabuf::transport::detail
