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

/// The wire protocol between the two ends of a channel. Each message is sent in its memory layout,
/// because both ends are little-endian.
namespace rdmabuf::transport::detail {

static_assert(std::endian::native == std::endian::little,
              "rdmabuf's transport has no byte order of its own: little-endian machines only");

/// The type of a message on the queue pair of the first device. The numbers are part of the wire
/// format and must not change.
///
/// A message up to the eager limit is sent as `eager`. For a longer message the sender sends an RTS
/// (`announce`). The receiver answers with a CTS (`grant`) for the first part of its buffer, as
/// large as one table of keys can describe. The sender's devices write this part by RDMA, and a FIN
/// reports it as written: `wrote`, or the immediate data of the last write. CTS and FIN are
/// repeated until the whole message is written.
///
/// A receive above the eager limit may be advertised to the peer (`offer`) before its message
/// arrives, if it is the first receive of its tag. The sender uses the advertisement only if the
/// receiver had received all earlier messages when it sent the advertisement. Then the next message
/// of the tag matches this receive. If that message is above the eager limit and fits into the
/// buffer, the sender writes it at once and sends a FIN.
enum class Kind : std::uint8_t {
    /// An eager message. Its data follows the header.
    eager = 1,
    /// RTS (request to send): the sender has a message of Header::length bytes.
    announce = 2,
    /// CTS (clear to send): the sender may write Header::length bytes. The regions of the buffer
    /// follow the header.
    grant = 3,
    /// FIN (end of the data): the sender has written the granted part, or it has written
    /// Header::length bytes to an advertised receive.
    wrote = 4,
    /// NACK: the message is longer than the receive buffer. The send and the receive both fail.
    refuse = 5,
    /// A notification: Header::value is the value of iput_notify().
    notify = 6,
    /// A credit message, which only returns credits.
    credit = 7,
    /// Advertisement of a posted receive. The regions of its buffer follow the header.
    offer = 8,
};

struct Header {
    Kind kind{};
    std::uint8_t rails = 0;
    std::uint16_t chunks = 0;
    /// The destination of this message: a send operation for a CTS or NACK, a receive operation for
    /// a FIN.
    std::uint32_t operation = 0;
    /// The operation of the sender that sends this message.
    std::uint32_t from = 0;
    /// Returned credits: total number of messages that the sender of this header has consumed.
    std::uint32_t taken_messages = 0;
    /// Returned credits: total number of control messages that the sender of this header has
    /// consumed.
    std::uint32_t taken_control = 0;
    /// For `offer`: total number of messages that the sender of this header has received.
    std::uint32_t seen_messages = 0;
    /// Length in bytes of the message, or of the part that is granted, advertised or written.
    std::uint64_t length = 0;
    /// The tag of the message, or the value of iput_notify().
    std::uint64_t value = 0;
};
static_assert(sizeof(Header) == 40 && std::is_trivially_copyable_v<Header>);

/// A region that the peer may write to, with one rkey for each device.
struct GrantedChunk {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::array<std::uint32_t, max_rails> rkeys{};
};
static_assert(sizeof(GrantedChunk) == 32 && std::is_trivially_copyable_v<GrantedChunk>);

/// Minimum number of bytes behind the header in a bounce buffer: enough for the regions of a CTS
/// (clear to send).
inline constexpr std::size_t grant_room = max_chunks * sizeof(GrantedChunk);

/// Maximum number of control messages in flight to a peer: CTS, advertisements, FIN, NACK, and RDMA
/// writes with immediate data.
inline constexpr std::uint32_t control_slots = 32;
/// Number of receives for credit messages. This number suffices, because an end sends a credit
/// message only after it has consumed a quarter of the messages of one class (messages or control
/// messages).
inline constexpr std::uint32_t credit_slots = 10;

/// The first message that a connector sends on its socket. The listener sends and allocates nothing
/// before it has checked the secret.
struct ConnectorProof {
    static constexpr std::uint32_t expected_magic = 0x50444452; // "RDDP"
    static constexpr std::uint16_t current_version = 2;

    std::uint32_t magic = expected_magic;
    std::uint16_t version = current_version;
    std::uint16_t reserved = 0;
    /// Handle::connector_secret(). The offset of this member is the same in every version of the
    /// protocol, so that the listener can check the secret of a connector of another version.
    Handle::Secret secret{};
};
static_assert(sizeof(ConnectorProof) == 24 && std::is_trivially_copyable_v<ConnectorProof>);

/// An end describes its queue pairs and limits with this message on the socket. The listener sends
/// its Hello first; then the connector sends its Hello.
struct Hello {
    static constexpr std::uint32_t expected_magic = 0x4c444452; // "RDDL"
    static constexpr std::uint16_t current_version = 2;

    std::uint32_t magic = expected_magic;
    std::uint16_t version = current_version;
    std::uint16_t rails = 0;
    /// In the Hello of the listener: Handle::listener_secret(). In the Hello of the connector: not
    /// used.
    Handle::Secret secret{};
    /// 0, or the errno value with which this end failed to create its queue pairs.
    std::uint32_t error = 0;
    std::uint32_t eager_limit = 0;
    std::uint32_t eager_slots = 0;
    /// The rkey of the memory at probe_address.
    std::uint32_t probe_rkey = 0;
    std::uint64_t max_message_size = 0;
    /// The target of the peer's RDMA writes of 0 bytes, which check whether this device responds.
    std::uint64_t probe_address = 0;
    std::array<std::array<std::byte, QueuePairAddress::wire_size>, max_rails> addresses{};
};
static_assert(sizeof(Hello) == 216 && std::is_trivially_copyable_v<Hello>);

/// The last message of each end on the socket: 0, or the errno value with which this end failed to
/// connect its queue pairs.
using ConnectResult = std::uint32_t;

} // namespace rdmabuf::transport::detail
