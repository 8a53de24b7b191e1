// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>

#include <rdmabuf/access.hpp>

#include "support/named.hpp"

namespace pingpong {

/// What is measured.
enum class Verb : std::uint8_t { send, write, write_imm, read, compare_swap, fetch_add };
inline constexpr std::array<examples::Named<Verb>, 6> verbs{{
    {"send", Verb::send},
    {"write", Verb::write},
    {"write-imm", Verb::write_imm},
    {"read", Verb::read},
    {"cas", Verb::compare_swap},
    {"fadd", Verb::fetch_add},
}};

/// As on the command line: "send", "write-imm", "cas".
[[nodiscard]] const char* to_string(Verb verb) noexcept;

/// Who does what: the initiator begins each transfer and holds the watch, the responder answers.
enum class Role : std::uint8_t { initiator, responder };
[[nodiscard]] const char* to_string(Role role) noexcept;

/// Whether the data goes to the responder and comes back. With the other verbs the initiator
/// fetches from the responder's memory, and the responder's program takes no part.
[[nodiscard]] constexpr bool is_exchange(Verb verb) noexcept {
    return verb == Verb::send || verb == Verb::write || verb == Verb::write_imm;
}
[[nodiscard]] constexpr bool is_atomic(Verb verb) noexcept {
    return verb == Verb::compare_swap || verb == Verb::fetch_add;
}

/// The bytes an atomic works on.
inline constexpr std::uint64_t atomic_size = 8;

/// The least that the memory must be registered with: nobody is given more.
[[nodiscard]] rdmabuf::Access access_for(Verb verb) noexcept;

/// What the latency of a verb is the time of: "half a round trip" or "a whole operation".
[[nodiscard]] const char* latency_meaning(Verb verb) noexcept;

} // namespace pingpong
