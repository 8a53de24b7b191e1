// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <rdmabuf/transport/remote_memory.hpp>

namespace rdmabuf::transport::detail {

/// What the peer's receives offered before their messages were sent: the next message of a tag may
/// be written there at once. There is one offer of a tag at most. It is in the table until the peer
/// has been told of what was written, as no other message of the tag may overtake that.
class Offers {
  public:
    static constexpr std::uint32_t none = 16;

    struct Offer {
        /// The peer's receive.
        std::uint32_t operation = 0;
        /// Of its buffer.
        std::uint64_t length = 0;
        RemoteTable remote{};
    };

    /// Whatever its state, the offer of a tag.
    [[nodiscard]] std::uint32_t find(std::uint64_t tag) const noexcept {
        for (std::uint32_t i = 0; i < none && in_table_ > 0; ++i) {
            if (states_[i] != State::free && tags_[i] == tag) {
                return i;
            }
        }
        return none;
    }
    [[nodiscard]] bool taken(std::uint32_t i) const noexcept { return states_[i] == State::taken; }
    [[nodiscard]] const Offer& operator[](std::uint32_t i) const noexcept { return offers_[i]; }

    /// Room for one more; nullptr when there is none, and it is as if it had not been made.
    [[nodiscard]] Offer* add(std::uint64_t tag) noexcept {
        const auto* const free = std::find(states_.begin(), states_.end(), State::free);
        if (free == states_.end()) {
            return nullptr;
        }
        const auto i = static_cast<std::size_t>(free - states_.begin());
        states_[i] = State::open;
        tags_[i] = tag;
        ++in_table_;
        return &offers_[i];
    }
    void take(std::uint32_t i) noexcept { states_[i] = State::taken; }
    void remove(std::uint32_t i) noexcept {
        states_[i] = State::free;
        --in_table_;
    }

  private:
    enum class State : std::uint8_t { free, open, taken };

    std::uint32_t in_table_ = 0;
    std::array<State, none> states_{};
    std::array<std::uint64_t, none> tags_{};
    std::array<Offer, none> offers_{};
};

} // namespace rdmabuf::transport::detail
