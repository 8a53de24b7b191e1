// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <rdmabuf/transport/remote_memory.hpp>

namespace rdmabuf::transport::detail {

/// The posted receives that the peer has advertised before their messages were sent. The next
/// message of the same tag may be written to such a receive at once. The table has at most one
/// advertisement per tag. A used advertisement remains in the table until the FIN (end of the data)
/// is sent, because no later message of the tag may overtake the FIN.
class Offers {
  public:
    static constexpr std::uint32_t none = 16;

    struct Offer {
        /// The receive operation of the peer, as OperationTable::name() encodes it.
        std::uint32_t operation = 0;
        /// The length of the peer's receive buffer in bytes.
        std::uint64_t length = 0;
        RemoteTable remote{};
    };

    /// Returns the index of the advertisement for @p tag, even if the advertisement is already
    /// used; none if the table has no advertisement for @p tag.
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

    /// Adds an advertisement for @p tag. @return the new advertisement; null if the table is full
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
