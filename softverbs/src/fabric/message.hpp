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

/// The messages on the Unix socket of a connection. All have one size and the byte order of the
/// machine. Descriptors travel with them as SCM_RIGHTS.
enum class MessageKind : std::uint16_t {
    /// The connector's first message: its slot, the sizes of the rings, and the address of its
    /// cookie. Carries the descriptors of the ring memory and of its doorbell.
    hello = 1,
    /// The acceptor's first message: the address of its cookie. Carries the descriptor of its
    /// doorbell.
    welcome,
    /// Wakes the other side while this side has not received the descriptor of its doorbell.
    poke,
    /// Shares memory: its id and length. Carries the descriptor.
    share,
    /// The reply to the message share: its error is 0, or the errno of the failed mapping.
    shared,
    /// Ends the sharing of the memory that has this id.
    unshare,
};

inline constexpr std::uint32_t message_magic = 0x62665673;
/// Incremented whenever these messages or the layout of the shared memory change.
inline constexpr std::uint16_t protocol_version = 1;
inline constexpr std::size_t cookie_bytes = 16;

struct Message {
    std::uint32_t magic = message_magic;
    std::uint16_t version = protocol_version;
    MessageKind kind{};
    /// In hello: the slot of the sender. In share, shared and unshare: the id of the memory.
    std::uint32_t number = 0;
    std::uint32_t error = 0;
    std::array<std::uint64_t, lanes> ring_bytes{};
    /// In hello and welcome: the address of the cookie in the memory of the sender.
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::array<std::byte, cookie_bytes> cookie{};
};
static_assert(sizeof(Message) == 64);

/// Parses and validates a message of another process. Returns nothing if the protocol version or a
/// value is invalid.
[[nodiscard]] std::optional<Message> parse_message(std::span<const std::byte> bytes) noexcept;

/// The maximum number of descriptors that a message carries.
inline constexpr std::size_t message_descriptors = 2;

/// A received message and its descriptors.
struct ReceivedMessage {
    Message message;
    std::array<UniqueFd, message_descriptors> descriptors{};
    /// Descriptors were lost, because this process has reached its limit of open files.
    bool truncated = false;
};

enum class Arrival {
    message,
    nothing,
    /// The other side has closed the socket.
    closed,
    garbage,
};

/// Receives one message without blocking.
[[nodiscard]] Arrival receive(int socket, ReceivedMessage& received) noexcept;

/// Sends one message without blocking. Returns 0 or an errno: EAGAIN (the socket is full), EPIPE
/// (the other side has closed it), ETOOMANYREFS (too many descriptors in flight).
[[nodiscard]] int post(int socket, const Message& message,
                       std::span<const int> descriptors) noexcept;

} // namespace softverbs::fabric
