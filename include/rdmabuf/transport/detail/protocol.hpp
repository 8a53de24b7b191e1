// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <rdmabuf/queue_pair_address.hpp>
#include <rdmabuf/transport/handle.hpp>
#include <rdmabuf/transport/options.hpp>
#include <rdmabuf/transport/remote_memory.hpp>

/// What the two ends of a channel say to each other. Memory layouts are wire formats here: both
/// ends are little-endian.
namespace rdmabuf::transport::detail {

static_assert(std::endian::native == std::endian::little,
              "rdmabuf's transport has no byte order of its own: little-endian machines only");

/// What a message on the first device's queue pair is. The numbers are on the wire: they stay.
///
/// A message up to the eager limit is one `eager`. A longer one is announced; the receiver grants a
/// part of its buffer, as much as one table of keys names; the sender's devices write there and
/// `wrote` says so (or the immediate data of the last write does), until all is granted and
/// written.
///
/// A receive of more than the eager limit that is there before its message may be offered at once,
/// if it is the first of its tag. The offer counts when no message was under way to the receiver:
/// then the next one of this tag is for this receive, and if it is long and short enough for the
/// buffer, it is written there and told like a granted one.
enum class Kind : std::uint8_t {
    /// The data is behind the header.
    eager = 1,
    /// "I have a message of this length."
    announce = 2,
    /// "Write this many bytes there": a RemoteTable's used part is behind the header.
    grant = 3,
    /// "All of what you granted, or this many bytes of what you offered, is written."
    wrote = 4,
    /// "My buffer is shorter than your message": it ends at both ends.
    refuse = 5,
    /// A value, of iput_notify().
    notify = 6,
    /// Nothing but credits.
    credit = 7,
    /// "My next receive of this tag is there": as a grant.
    offer = 8,
};

struct Header {
    Kind kind{};
    std::uint8_t rails = 0;
    std::uint16_t chunks = 0;
    /// Which operation this is for: the sender's with grant and refuse, the receiver's with wrote.
    std::uint32_t operation = 0;
    /// The other one.
    std::uint32_t from = 0;
    /// Messages that its sender has taken in and given the room back of, of each class.
    std::uint32_t taken_messages = 0;
    std::uint32_t taken_control = 0;
    /// Of an offer: how many messages its sender has seen arrive.
    std::uint32_t seen_messages = 0;
    /// Bytes: of the message, of what is granted, offered or written.
    std::uint64_t length = 0;
    /// The tag, or the value.
    std::uint64_t value = 0;
};
static_assert(sizeof(Header) == 40 && std::is_trivially_copyable_v<Header>);

/// One region of a granted table, for every device.
struct GrantedChunk {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::array<std::uint32_t, max_rails> rkeys{};
};
static_assert(sizeof(GrantedChunk) == 32 && std::is_trivially_copyable_v<GrantedChunk>);

/// Behind a header there is room for this much at least.
inline constexpr std::size_t grant_room = max_chunks * sizeof(GrantedChunk);

/// Control messages under way to a peer: grant, offer, wrote, refuse, and writes with immediate
/// data.
inline constexpr std::uint32_t control_slots = 32;
/// Receives that are posted for credit messages. Each tells of a quarter of the room of one class,
/// so more cannot be under way.
inline constexpr std::uint32_t credit_slots = 10;

/// The first message of a connector on its socket. The listener sends and allocates nothing before
/// it has checked the secret.
struct ConnectorProof {
    static constexpr std::uint32_t expected_magic = 0x50444452; // "RDDP"
    static constexpr std::uint16_t current_version = 2;

    std::uint32_t magic = expected_magic;
    std::uint16_t version = current_version;
    std::uint16_t reserved = 0;
    /// Handle::connector_secret(). It is at the same offset in every version, so that only a peer
    /// with the handle can report another version.
    Handle::Secret secret{};
};
static_assert(sizeof(ConnectorProof) == 24 && std::is_trivially_copyable_v<ConnectorProof>);

/// The next message on the socket, first of the listener, then of the connector: its queue pairs
/// and limits.
struct Hello {
    static constexpr std::uint32_t expected_magic = 0x4c444452; // "RDDL"
    static constexpr std::uint16_t current_version = 2;

    std::uint32_t magic = expected_magic;
    std::uint16_t version = current_version;
    std::uint16_t rails = 0;
    /// Handle::listener_secret() in the message of the listener; not read from a connector.
    Handle::Secret secret{};
    /// 0, or the errno value with which this end could not create its queue pairs.
    std::uint32_t error = 0;
    std::uint32_t eager_limit = 0;
    std::uint32_t eager_slots = 0;
    /// The key of probe_address.
    std::uint32_t probe_rkey = 0;
    std::uint64_t max_message_size = 0;
    /// Memory to which the peer may send writes of 0 bytes, to find out whether the device answers.
    std::uint64_t probe_address = 0;
    std::array<std::array<std::byte, QueuePairAddress::wire_size>, max_rails> addresses{};
};
static_assert(sizeof(Hello) == 216 && std::is_trivially_copyable_v<Hello>);

/// The last message of both ends on the socket: 0, or the errno value with which this end could not
/// connect its queue pairs.
using ConnectResult = std::uint32_t;

} // namespace rdmabuf::transport::detail
