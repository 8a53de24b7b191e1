// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/transport/handle.hpp>
#include <rdmabuf/transport/options.hpp>
#include <rdmabuf/transport/remote_memory.hpp>

/// The wire protocol between the two ends of a channel. Each structure is sent in its memory
/// layout, because both ends are little-endian.
namespace rdmabuf::transport::detail {

static_assert(std::endian::native == std::endian::little,
              "the wire format of the transport is defined for little-endian machines only");

/// The type of a message. All messages are sent on the first queue pair of the channel. The numbers
/// are part of the wire format and must not change.
///
/// A message up to the eager limit is sent as `eager`, unless the sender has no credits for it, the
/// send is synchronous, or the data can be neither copied nor read from one registered region.
/// Other messages use one of two methods:
///   - If the receiver has advertised its receive buffer (`advertisement`) before the message was
///     sent, and the message is longer than the eager limit and fits into this buffer, the sender
///     writes the data to this buffer by RDMA. If each queue pair needs only one work request,
///     these writes have immediate data, and the length of the message is the sum of their lengths.
///     Otherwise a `fin` with the length follows the data of the first queue pair.
///   - Otherwise, the sender sends `rts` (request to send). After the receiver has matched this
///     message with a posted receive, it either reads the data by RDMA and sends `rget_done`, or it
///     sends `cts` (clear to send) for the first part of its buffer. The sender writes this part,
///     and the last write of each queue pair has immediate data. If the buffer has further parts,
///     they follow in the same way.
enum class Kind : std::uint8_t {
    /// An eager message. Its data follows the header. `value` is the tag.
    eager = 1,
    /// RTS (request to send). RtsBody follows the header. `value` is the tag.
    rts = 2,
    /// CTS (clear to send). `number` identifies the send request. CtsBody follows the header.
    cts = 3,
    /// Advertisement of a posted receive. CtsBody follows the header. `value` is the tag.
    advertisement = 4,
    /// FIN (end of the data). The sender has written a message of `value` bytes to the buffer of
    /// the advertised receive that `number` identifies.
    fin = 5,
    /// NACK. The message of the send request that `number` identifies is longer than the receive
    /// buffer.
    nack = 6,
    /// End of an RDMA read. The receiver has read all data of the send request that `number`
    /// identifies; also sent for a message of 0 bytes.
    rget_done = 7,
    /// A notification, whose bytes follow the header. See NotificationFences for `value`.
    notify = 8,
    /// A message that only returns credits. For `number`, see Header::number. `value` is the total
    /// number of bytes of notifications that the sender of this message has consumed.
    credit = 9,
    /// The receiver withdraws the advertisement of the receive that `number` identifies.
    cancel = 10,
    /// The sender confirms that it will not use the withdrawn advertisement of the receive that
    /// `number` identifies.
    cancelled = 11,
    /// The sender of this message closes the channel. No further message follows.
    close = 12,
    /// A queue pair has failed, and the sender of this message no longer uses it; see RailRecovery.
    /// `rails` is the index of the queue pair. `value` is the number of RDMA writes with immediate
    /// data that have arrived on it.
    rail_down = 13,
    /// The sender has written `value` bytes for the receive that `number` identifies. It has
    /// written them on the first queue pair, in place of a queue pair that has failed. `rails` is
    /// an encoded RepeatedRails.
    range_repeated = 14,
    /// The sender has posted again, on the first queue pair, all RDMA writes that were lost with a
    /// failed queue pair. `rails` is the index of the failed queue pair.
    rail_recovered = 15,
    /// The sender has created a new queue pair that replaces a failed one; see RailProbation.
    /// `rails` is the index of both queue pairs. The address of the new queue pair
    /// (QueuePairAddress::encode()) follows the header.
    rail_replaced = 16,
    /// The sender has connected the new queue pair that its `rail_replaced` message described.
    /// `rails` is the index of this queue pair.
    rail_connected = 17,
};

/// The first bytes of each message. A message without a body consists only of this header.
struct Header {
    Kind kind{};
    /// For `fin`: the number of queue pairs that transfer the data. For the kinds from `rail_down`
    /// on, see Kind.
    std::uint8_t rails = 0;
    /// The lower 16 bits of the number of `eager` and `rts` messages that the sender of this header
    /// has received.
    std::uint16_t received = 0;
    /// For `eager`, `rts` and `credit`: the lower 32 bits of the number of bytes of eager messages
    /// that the sender of this header has consumed. For the other kinds that belong to a send or
    /// receive request: the number of this request; see Kind and SharedState::wire_number().
    std::uint32_t number = 0;
    std::uint64_t value = 0;
};
static_assert(sizeof(Header) == 16 && std::is_trivially_copyable_v<Header>);

/// The body of an RTS. `chunks` KeyedChunk objects follow. They describe the memory of the sender,
/// if the receiver may read this memory by RDMA; otherwise `chunks` is 0.
struct RtsBody {
    /// The length of the message in bytes.
    std::uint64_t length = 0;
    /// The number of the send request; see SharedState::wire_number().
    std::uint32_t request = 0;
    std::uint16_t chunks = 0;
    std::uint16_t rails = 0;
};
static_assert(sizeof(RtsBody) == 16 && std::is_trivially_copyable_v<RtsBody>);

/// The body of a CTS or of an advertisement. `chunks` KeyedChunk objects follow. They describe the
/// receive buffer, to which the sender of the data may write.
struct CtsBody {
    /// The number of bytes that the sender of the data may write.
    std::uint64_t length = 0;
    /// The number of the receive request; see SharedState::wire_number().
    std::uint32_t request = 0;
    std::uint16_t chunks = 0;
    std::uint16_t rails = 0;
};
static_assert(sizeof(CtsBody) == 16 && std::is_trivially_copyable_v<CtsBody>);

inline constexpr std::size_t max_body = sizeof(CtsBody) + max_chunks * sizeof(KeyedChunk);
/// Maximum length in bytes of a message without user data.
inline constexpr std::size_t max_control_message = sizeof(Header) + max_body;

/// Header::value of a `notify` message. It lists the fences of the notification. A fence is an RDMA
/// write of 0 bytes with immediate data, on a queue pair that has written data and is not the first
/// one. The receiver reports the notification after all its fences have arrived, because all
/// earlier RDMA writes are then visible.
struct NotificationFences {
    /// The sequence number of the notification. It wraps around at Immediate::max_request. The
    /// fences of the notification contain the same number in Immediate::request.
    std::uint32_t number = 0;
    /// Bit i is set if the queue pair with the index i has posted a fence for this notification.
    /// Also set if the queue pair has failed instead: the receiver then waits for the message
    /// `rail_recovered`.
    std::uint32_t rails = 0;

    [[nodiscard]] std::uint64_t encode() const noexcept {
        return number | static_cast<std::uint64_t>(rails) << 32;
    }
    [[nodiscard]] static NotificationFences decode(std::uint64_t value) noexcept {
        return {static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32)};
    }
};

/// The immediate data of an RDMA write. The write is either the last one of a queue pair to the
/// memory of one CTS or advertisement, or a fence of a notification (see NotificationFences).
struct Immediate {
    /// The number of bits of `request`, which are the lower bits of the immediate data.
    static constexpr unsigned request_bits = 27;
    static constexpr std::uint32_t max_request = (1U << request_bits) - 1;

    bool fence = false;
    /// The number of queue pairs that transfer the data of the receive.
    std::uint32_t rails = 1;
    /// The number of the receive request, as SharedState::wire_number() returns it. For a fence:
    /// NotificationFences::number.
    std::uint32_t request = 0;

    [[nodiscard]] std::uint32_t encode() const noexcept {
        return (fence ? 1U : 0U) << 31 | (rails - 1) << request_bits | request;
    }
    [[nodiscard]] static Immediate decode(std::uint32_t value) noexcept {
        return {.fence = value >> 31 != 0,
                .rails = (value >> request_bits & 15U) + 1,
                .request = value & max_request};
    }
};
static_assert(max_channel_rails <= 16, "Immediate::rails has four bits");

/// The two numbers that Header::rails of a `range_repeated` message contains.
struct RepeatedRails {
    /// The index of the failed queue pair.
    std::uint32_t rail = 0;
    /// The number of queue pairs among which the data of the receive was divided.
    std::uint32_t rails = 1;

    [[nodiscard]] std::uint8_t encode() const noexcept {
        return static_cast<std::uint8_t>(rail << 4U | (rails - 1));
    }
    [[nodiscard]] static RepeatedRails decode(std::uint8_t value) noexcept {
        return {.rail = std::uint32_t{value} >> 4U, .rails = (std::uint32_t{value} & 15U) + 1};
    }
};

/// The first message that a connector sends on its socket. It contains a secret. The listener sends
/// nothing and allocates no queue pairs or buffers for the connector before it has checked this
/// secret.
struct ConnectorProof {
    static constexpr std::uint32_t expected_magic = 0x50444452; // "RDDP"
    static constexpr std::uint16_t current_version = 8;

    std::uint32_t magic = expected_magic;
    std::uint16_t version = current_version;
    std::uint16_t reserved = 0;
    /// The secret that Handle::connector_secret() returns. The offset of this member is the same in
    /// every version of the protocol. Therefore a listener can check the secret of a connector of
    /// another version.
    Handle::Secret secret{};
};
static_assert(sizeof(ConnectorProof) == 24 && std::is_trivially_copyable_v<ConnectorProof>);

/// Describes the queue pairs and limits of one end of a channel. If the ends connect by a socket,
/// the listener sends its Hello first; then the connector sends its Hello. A ChannelAddress also
/// contains a Hello.
struct Hello {
    static constexpr std::uint32_t expected_magic = 0x4c444452; // "RDDL"
    static constexpr std::uint16_t current_version = 8;

    std::uint32_t magic = expected_magic;
    std::uint16_t version = current_version;
    /// The number of devices of this end on which queue pairs were created.
    std::uint16_t rails = 0;
    /// In the Hello of the listener: the secret that Handle::listener_secret() returns. In a
    /// ChannelAddress: the random number that identifies this end in a ConnectedDatagram. In the
    /// Hello of the connector, this member is not used.
    Handle::Secret secret{};
    /// The errno value with which this end failed to create its queue pairs; 0 if they were
    /// created.
    std::uint32_t error = 0;
    /// Maximum length of an eager message that this end can receive, in bytes.
    std::uint32_t eager_limit = 0;
    /// Maximum number of bytes of unexpected eager messages that this end stores. A message is
    /// unexpected if it arrives before its receive is posted.
    std::uint32_t unexpected_limit = 0;
    /// Maximum number of bytes of notifications that this end stores until its program reads them.
    std::uint32_t notification_limit = 0;
    /// Maximum number of RTS messages that this end stores until its program posts their receives.
    std::uint32_t depth = 0;
    std::uint32_t reserved = 0;
    /// 0 if EndpointOptions::keep_sockets of this end is false. If one of the ends sends 0, both
    /// ends close the socket after the channel is connected.
    std::uint32_t keep_socket = 1;
    /// The number of queue pairs of this end on each device.
    std::uint32_t queue_pairs_per_device = 1;
    /// The maximum message length that all ports of this end support, in bytes.
    std::uint64_t max_message_size = 0;
    /// The address of a few bytes of memory of this end, which are the target of keepalive writes
    /// and fences of the peer. The contents of this memory are not used.
    std::uint64_t probe_address = 0;
    /// For each device of this end, the rkey of the memory at probe_address.
    std::array<std::uint32_t, max_rails> probe_rkeys{};
    /// The addresses of the queue pairs. Queue pair number i of a device has the index
    /// queue_pairs_per_device * device + i.
    std::array<std::array<std::byte, QueuePairAddress::wire_size>, max_channel_rails> addresses{};
};
static_assert(std::is_trivially_copyable_v<Hello> &&
              std::has_unique_object_representations_v<Hello>);

/// The datagram with which one end of a channel informs the other end that all queue pairs of the
/// sender are connected. Only prepared channels use it; see PeerSetup.
struct ConnectedDatagram {
    static constexpr std::uint32_t expected_magic = 0x43444452; // "RDDC"

    std::uint32_t magic = expected_magic;
    std::uint16_t version = Hello::current_version;
    /// 1 if the sender has not received a ConnectedDatagram of the other end yet; otherwise 0.
    std::uint16_t needs_reply = 0;
    /// Identifies the receiver of this datagram: Hello::secret of the ChannelAddress that the
    /// receiver has created.
    Handle::Secret to{};
    /// Identifies the sender of this datagram: Hello::secret of the ChannelAddress that the sender
    /// has created.
    Handle::Secret from{};
};
static_assert(sizeof(ConnectedDatagram) == 40 && std::is_trivially_copyable_v<ConnectedDatagram>);

/// The last message of the handshake, which each end sends on the socket: 0 if its queue pairs are
/// connected; otherwise the errno value of the failure.
using ConnectResult = std::uint32_t;

/// The byte that an end sends on the socket before it closes a channel whose messages are all
/// acknowledged. The peer then knows that the channel was closed, even if the `close` message does
/// not arrive.
inline constexpr std::uint8_t goodbye = 1;

} // namespace rdmabuf::transport::detail
