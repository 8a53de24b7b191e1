// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/connection.hpp"
#include "fabric/link_memory.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Kinds of messages on the Unix socket of a connection within this host. A message can carry file
/// descriptors (SCM_RIGHTS). All messages have the same size. Integers in messages have the byte
/// order of the host.
enum class MessageKind : std::uint16_t {
    /// The first message of the connector. It contains the slot of the sending process, the ring
    /// sizes, and the address of the sender's Cookie (random bytes that prove read access). It
    /// carries the file descriptors of the shared memory and of the eventfd that wakes the sender.
    hello = 1,
    /// The first message of the acceptor. It contains the address of the sender's Cookie (random
    /// bytes that prove read access), and carries the eventfd that wakes the sender.
    welcome,
    /// Wakes the other process. Used only while the sender has no eventfd with which it can wake
    /// the other process.
    poke,
    /// Shares memory of the sender with the other process. The message contains the id and the
    /// length of the memory, and carries its file descriptor.
    share,
    /// The reply to a "share" message. Message::error is 0 if the sender of the reply has mapped
    /// the memory, and otherwise an errno.
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
    /// In a "hello" message: the slot of the sending process. In "share", "shared" and "unshare"
    /// messages: the id of the shared memory.
    std::uint32_t number = 0;
    std::uint32_t error = 0;
    std::array<std::uint64_t, lanes> ring_bytes{};
    /// In "hello" and "welcome" messages: the address, in the sending process, of its Cookie. The
    /// receiver reads these random bytes to check whether it can read memory of the sender.
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::array<std::byte, cookie_bytes> cookie{};
};
static_assert(sizeof(Message) == 64);

/// Maximum number of file descriptors that a message can carry.
inline constexpr std::size_t message_descriptors = 2;

struct ReceivedMessage {
    Message message;
    std::array<UniqueFd, message_descriptors> descriptors{};
    /// Whether file descriptors of the message were lost (MSG_CTRUNC), usually because this process
    /// has reached its limit of open file descriptors (ulimit -n).
    bool truncated = false;
};

enum class Arrival {
    message,
    nothing,
    /// The other process has closed the socket.
    closed,
    garbage,
};

/// Receives one message from a Unix socket. Does not block.
[[nodiscard]] Arrival receive(int socket, ReceivedMessage& received) noexcept;

/// Sends one message, which carries the given file descriptors. Does not block. Returns 0 or an
/// errno: EAGAIN (the socket is full), EPIPE (the other process has closed the socket),
/// ETOOMANYREFS (too many file descriptors are in messages that were not received yet).
[[nodiscard]] int post(int socket, const Message& message,
                       std::span<const int> descriptors) noexcept;

} // namespace softverbs::fabric
