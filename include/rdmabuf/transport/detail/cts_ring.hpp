// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <rdmabuf/transport/detail/flow_control.hpp>
#include <rdmabuf/transport/remote_memory.hpp>

namespace rdmabuf::transport::detail {

/// The tags of the messages that were sent last. When an advertisement of a posted receive arrives,
/// the sender searches these tags: if a message in flight has the tag of the receive, this message
/// matches the receive, and the advertisement must not be used.
class SentTags {
  public:
    /// Stores the tag of message @p number, as MessageWindow::sent() counts messages.
    /// @param paired  true if an advertised receive for the message was known when it was sent
    void add(std::uint32_t number, std::uint64_t tag, bool paired) noexcept {
        tags_[number % MessageWindow::size] = tag;
        paired_[number % MessageWindow::size] = paired;
    }
    /// Finds the first message from number @p first to @p last (excluded) that has this tag and is
    /// not paired with a receive, and pairs it.
    /// @return false if there is no such message
    [[nodiscard]] bool pair(std::uint32_t first, std::uint32_t last, std::uint64_t tag) noexcept {
        for (std::uint32_t i = first; i != last; ++i) {
            if (tags_[i % MessageWindow::size] == tag && !paired_[i % MessageWindow::size]) {
                paired_[i % MessageWindow::size] = true;
                return true;
            }
        }
        return false;
    }

  private:
    std::array<std::uint64_t, MessageWindow::size> tags_{};
    std::array<bool, MessageWindow::size> paired_{};
};

/// The receives that the peer has advertised, in the order in which they were posted. The next
/// message of a tag matches the first of these receives that has this tag.
class CtsRing {
  public:
    /// Maximum number of advertised receives of a channel.
    static constexpr std::uint32_t capacity = 32;

    /// A receive of the peer that the sender may write to.
    struct Entry {
        std::uint64_t tag = 0;
        /// The length of the receive buffer in bytes.
        std::uint64_t length = 0;
        /// The receive request of the peer.
        std::uint32_t request = 0;
        RemoteTable remote{};
    };

    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] bool full() const noexcept { return size_ == capacity; }

    /// Adds an entry behind all others. The ring must not be full.
    [[nodiscard]] Entry& push_back() noexcept {
        const std::uint8_t slot = unused();
        order_[size_++] = slot;
        used_ |= std::uint32_t{1} << slot;
        return entries_[slot];
    }
    /// Returns the first entry with this tag; nullptr if there is none.
    [[nodiscard]] Entry* find(std::uint64_t tag) noexcept {
        return find_if([tag](const Entry& entry) { return entry.tag == tag; });
    }
    [[nodiscard]] Entry* find_request(std::uint32_t request) noexcept {
        return find_if([request](const Entry& entry) { return entry.request == request; });
    }
    void remove(const Entry* entry) noexcept {
        const auto slot = static_cast<std::uint8_t>(entry - entries_.data());
        std::size_t at = 0;
        while (order_[at] != slot) {
            ++at;
        }
        for (--size_; at < size_; ++at) {
            order_[at] = order_[at + 1];
        }
        used_ &= ~(std::uint32_t{1} << slot);
    }

  private:
    template <class Matches>
    [[nodiscard]] Entry* find_if(const Matches& matches) noexcept {
        for (std::uint32_t i = 0; i < size_; ++i) {
            if (Entry& entry = entries_[order_[i]]; matches(entry)) {
                return &entry;
            }
        }
        return nullptr;
    }
    [[nodiscard]] std::uint8_t unused() const noexcept {
        std::uint8_t slot = 0;
        while ((used_ >> slot & 1U) != 0) {
            ++slot;
        }
        return slot;
    }

    static_assert(capacity == 32, "used_ has 32 bits");
    std::uint32_t size_ = 0;
    /// Bit i is set if entries_[i] is in the ring.
    std::uint32_t used_ = 0;
    /// The indices of the entries, in the order in which the peer posted the receives.
    std::array<std::uint8_t, capacity> order_{};
    std::array<Entry, capacity> entries_{};
};

} // namespace rdmabuf::transport::detail
