// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/connection.hpp"
#include "fabric/link_memory.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Kinds of messages on the Unix socket of a connection. A message can carry descriptors
/// (SCM_RIGHTS). All messages have the same size. Their numbers have the byte order of the machine.
enum class MessageKind : std::uint16_t {
    /// The first message of the connector. It contains the slot of the sender, the ring sizes and
    /// the address of the sender's Cookie. It carries the descriptors of the shared memory and of
    /// the doorbell.
    hello = 1,
    /// The first message of the acceptor. It contains the address of the sender's Cookie, and
    /// carries the descriptor of the doorbell.
    welcome,
    /// Wakes the other process. Used only until the sender has received the doorbell of the other
    /// process.
    poke,
    /// Shares memory with the other process. The message contains the id and the length of the
    /// memory, and carries its descriptor.
    share,
    /// The reply to a "share" message. Message::error is 0 if the memory was mapped, and otherwise
    /// an errno.
    shared,
    /// Requests that the other process unmaps the shared memory with the id Message::number.
    unshare,
};

inline constexpr std::uint32_t message_magic = 0x62665673;
/// Version of the messages and of the layout of the shared memory. Increment it when one of them
/// changes.
inline constexpr std::uint16_t protocol_version = 1;
inline constexpr std::size_t cookie_bytes = 16;

struct Message {
    std::uint32_t magic = message_magic;
    std::uint16_t version = protocol_version;
    MessageKind kind{};
    /// In a "hello" message: the slot of the sender. In "share", "shared" and "unshare" messages:
    /// the id of the memory.
    std::uint32_t number = 0;
    std::uint32_t error = 0;
    std::array<std::uint64_t, lanes> ring_bytes{};
    /// In "hello" and "welcome" messages: the address of the Cookie in the sending process.
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::array<std::byte, cookie_bytes> cookie{};
};
static_assert(sizeof(Message) == 64);

/// Parses a message and checks its values. Returns no value if a value or the version is invalid.
[[nodiscard]] std::optional<Message> parse_message(std::span<const std::byte> bytes) noexcept;

/// Maximum number of descriptors in a message.
inline constexpr std::size_t message_descriptors = 2;

/// A received message and its descriptors.
struct ReceivedMessage {
    Message message;
    std::array<UniqueFd, message_descriptors> descriptors{};
    /// Whether descriptors were lost, because this process has reached its limit of open files.
    bool truncated = false;
};

enum class Arrival {
    message,
    nothing,
    /// The other process has closed the socket.
    closed,
    garbage,
};

/// Receives one message. Does not block.
[[nodiscard]] Arrival receive(int socket, ReceivedMessage& received) noexcept;

/// Sends one message. Does not block. Returns 0 or an errno: EAGAIN (the socket is full), EPIPE
/// (the other process has closed the socket), ETOOMANYREFS (too many descriptors are in flight).
[[nodiscard]] int post(int socket, const Message& message,
                       std::span<const int> descriptors) noexcept;

} // namespace softverbs::fabric
