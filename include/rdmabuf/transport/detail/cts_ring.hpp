// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <rdmabuf/transport/detail/flow_control.hpp>
#include <rdmabuf/transport/remote_memory.hpp>

namespace rdmabuf::transport::detail {

/// The tags of the messages that this end has sent most recently. When an advertisement of a posted
/// receive arrives, a message with the same tag may already be in flight. This message matches the
/// receive, so this end must not write a later message to the receive buffer. Therefore this end
/// searches the stored tags when an advertisement arrives.
class SentTags {
  public:
    /// Stores the tag of a message.
    /// @param number  the sequence number of the message; see MessageWindow::sent()
    /// @param paired  true if the peer had advertised the matching receive before the message was
    ///                sent
    void add(std::uint32_t number, std::uint64_t tag, bool paired) noexcept {
        tags_[number % MessageWindow::size] = tag;
        paired_[number % MessageWindow::size] = paired;
    }
    /// Searches the messages with numbers from @p first to @p last - 1 for the first one that has
    /// this tag and is not paired with an advertised receive yet. Marks this message as paired.
    /// Called when a receive with this tag was advertised.
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

/// The posted receives that the peer has advertised, in the order in which they were posted. The
/// next message that this end sends with a given tag matches the first of these receives with that
/// tag.
class CtsRing {
  public:
    /// Maximum number of receives that each end of a channel may advertise at a time.
    static constexpr std::uint32_t capacity = 32;

    /// A receive that the peer has advertised. This end may write to the receive buffer by RDMA.
    struct Entry {
        std::uint64_t tag = 0;
        /// The length of the receive buffer in bytes.
        std::uint64_t length = 0;
        /// The number by which the peer identifies the receive; see SharedState::wire_number().
        std::uint32_t request = 0;
        RemoteTable remote{};
    };

    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] bool full() const noexcept { return size_ == capacity; }

    /// Appends an entry and returns it. The ring must not be full.
    [[nodiscard]] Entry& push_back() noexcept {
        const std::uint8_t index = unused();
        order_[size_++] = index;
        used_ |= std::uint32_t{1} << index;
        return entries_[index];
    }
    /// Returns the first entry with this tag; nullptr if no entry has this tag.
    [[nodiscard]] Entry* find(std::uint64_t tag) noexcept {
        return find_if([tag](const Entry& entry) { return entry.tag == tag; });
    }
    [[nodiscard]] Entry* find_request(std::uint32_t request) noexcept {
        return find_if([request](const Entry& entry) { return entry.request == request; });
    }
    void remove(const Entry* entry) noexcept {
        const auto index = static_cast<std::uint8_t>(entry - entries_.data());
        std::size_t at = 0;
        while (order_[at] != index) {
            ++at;
        }
        for (--size_; at < size_; ++at) {
            order_[at] = order_[at + 1];
        }
        used_ &= ~(std::uint32_t{1} << index);
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
        std::uint8_t index = 0;
        while ((used_ >> index & 1U) != 0) {
            ++index;
        }
        return index;
    }

    static_assert(capacity == 32, "used_ has 32 bits");
    std::uint32_t size_ = 0;
    /// Bit i is set if entries_[i] is in use.
    std::uint32_t used_ = 0;
    /// The indices in entries_ of the advertised receives, in the order in which the peer posted
    /// them.
    std::array<std::uint8_t, capacity> order_{};
    std::array<Entry, capacity> entries_{};
};

} // namespace rdmabuf::transport::detail
