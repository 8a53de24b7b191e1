// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/link_memory.hpp"
#include "fabric/node.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// What the sockets carry: messages of one size in the byte order of the machine, which both sides
/// share. Descriptors travel beside them.
enum class MessageKind : std::uint16_t {
    /// First from the connector: its slot, the sizes of the rings, where its cookie is. With the
    /// rings' memory and its doorbell.
    hello = 1,
    /// First from the acceptor: where its cookie is. With its doorbell.
    welcome,
    /// Wakes a side whose doorbell is not known yet.
    poke,
    /// Memory offered: its number and length. With the file.
    share,
    /// What became of the offer: an errno, or 0.
    shared,
    /// The memory with this number can be unmapped.
    unshare,
};

inline constexpr std::uint32_t message_magic = 0x62665673;
/// Changes with everything that two processes have to agree on: these messages, the rings' memory.
inline constexpr std::uint16_t protocol_version = 1;
inline constexpr std::size_t cookie_bytes = 16;

struct Message {
    std::uint32_t magic = message_magic;
    std::uint16_t version = protocol_version;
    MessageKind kind{};
    /// hello: the slot of who sends it; share, shared, unshare: the memory.
    std::uint32_t number = 0;
    std::uint32_t error = 0;
    std::array<std::uint64_t, lanes> ring_bytes{};
    /// hello, welcome: of the cookie, in the memory of who sends it.
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::array<std::byte, cookie_bytes> cookie{};
};
static_assert(sizeof(Message) == 64);

/// The message that another process sent, if it is one: of this protocol, with possible values.
[[nodiscard]] std::optional<Message> parse_message(std::span<const std::byte> bytes) noexcept;

/// Descriptors that come with a message, at most.
inline constexpr std::size_t message_descriptors = 2;

/// A message that came by a socket.
struct ReceivedMessage {
    Message message;
    std::array<UniqueFd, message_descriptors> descriptors{};
    /// Descriptors were lost: this process has as many as it may have.
    bool truncated = false;
};

enum class Arrival {
    message,
    nothing,
    /// The other side has closed the socket.
    closed,
    garbage,
};

/// Takes one message from a socket, without waiting.
[[nodiscard]] Arrival receive(int socket, ReceivedMessage& received) noexcept;

/// Puts one message into a socket, without waiting. 0 or an errno: EAGAIN (no room now), EPIPE
/// (closed by the other side), ETOOMANYREFS (too many descriptors are on their way).
[[nodiscard]] int post(int socket, const Message& message,
                       std::span<const int> descriptors) noexcept;

} // namespace softverbs::fabric
