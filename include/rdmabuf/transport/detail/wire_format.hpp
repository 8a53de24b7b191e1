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

/// The wire protocol between the two ends of a channel. Each structure is sent in its memory
/// layout, because both ends are little-endian.
namespace rdmabuf::transport::detail {

static_assert(std::endian::native == std::endian::little,
              "the wire format of the transport is defined for little-endian machines only");

/// The type of a message. Messages are sent by the queue pair of the first device. The numbers are
/// part of the wire format and must not change.
///
/// A message up to the eager limit is sent as `eager`. A longer message uses one of two methods:
///   - The receiver has advertised its receive buffer (`advertisement`) before the message was
///     sent. The sender writes the data to this buffer by RDMA. If each device writes its range by
///     one work request, these writes have immediate data, and the length of the message is the sum
///     of their lengths. Otherwise a `fin` ends the message.
///   - The sender sends `rts` (request to send). After the receiver has matched it with a receive,
///     the receiver either reads the data by RDMA and sends `rget_done`, or sends `cts` (clear to
///     send) for the first range of its buffer. The sender writes this range and ends it with
///     immediate data. Further ranges follow in the same way.
enum class Kind : std::uint8_t {
    /// An eager message. Its data follows the header. `value` is the tag.
    eager = 1,
    /// RTS (request to send). RtsBody follows the header. `value` is the tag.
    rts = 2,
    /// CTS (clear to send). `number` identifies the send request. CtsBody follows the header.
    cts = 3,
    /// Advertisement of a posted receive. CtsBody follows the header. `value` is the tag.
    advertisement = 4,
    /// FIN (end of the data). The sender has written `value` bytes to the advertised receive that
    /// `number` identifies.
    fin = 5,
    /// NACK. The message of the send request that `number` identifies is longer than the receive
    /// buffer.
    nack = 6,
    /// End of a read. The receiver has read all data of the send request that `number` identifies.
    rget_done = 7,
    /// A notification, whose bytes follow the header. See FenceCounts for `value`.
    notify = 8,
    /// A message that only returns credits. `number` has the same meaning as for `eager`; `value`
    /// is the total number of bytes of consumed notifications.
    credit = 9,
    /// The receiver withdraws the advertisement of the receive that `number` identifies.
    cancel = 10,
    /// The sender confirms that it will not use the withdrawn advertisement of the receive that
    /// `number` identifies.
    cancelled = 11,
    /// The sender of this message closes the channel. No further message follows.
    close = 12,
};

/// The first bytes of each message. A message without a body consists only of this header.
struct Header {
    Kind kind{};
    /// For `fin`: the number of devices that transfer the data.
    std::uint8_t rails = 0;
    /// The lower 16 bits of the number of `eager` and `rts` messages that the sender of this header
    /// has received.
    std::uint16_t received = 0;
    /// For `eager`, `rts` and `credit`: the lower 32 bits of the number of bytes of eager messages
    /// that the sender of this header has consumed. For the other kinds: the number of the send or
    /// receive request to which the message belongs; see SharedState::wire_number().
    std::uint32_t number = 0;
    std::uint64_t value = 0;
};
static_assert(sizeof(Header) == 16 && std::is_trivially_copyable_v<Header>);

/// A memory region that the peer may access by RDMA, with one rkey for each device.
struct KeyedChunk {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::array<std::uint32_t, max_rails> rkeys{};
};
static_assert(sizeof(KeyedChunk) == 32 && std::is_trivially_copyable_v<KeyedChunk>);

/// The body of an RTS. `chunks` KeyedChunk objects follow. They describe the memory of the sender,
/// if the receiver may read it by RDMA; otherwise `chunks` is 0.
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
/// memory to which the sender may write.
struct CtsBody {
    /// The number of bytes that the sender may write.
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

/// The value of a `notify` message. For each device except the first one, it contains the lower 16
/// bits of the number of fences that the sender has posted. A fence is an RDMA write of 0 bytes
/// with immediate data. When these fences have arrived, all earlier RDMA writes are visible, so the
/// receiver then reports the notification.
struct FenceCounts {
    std::array<std::uint16_t, max_rails> counts{};

    [[nodiscard]] std::uint64_t encode() const noexcept {
        return std::bit_cast<std::uint64_t>(counts);
    }
    [[nodiscard]] static FenceCounts decode(std::uint64_t value) noexcept {
        return {.counts = std::bit_cast<std::array<std::uint16_t, max_rails>>(value)};
    }
};

/// The immediate data of an RDMA write. The write either is the last write of a device for a
/// receive, or a fence that precedes a notification.
struct Immediate {
    /// Maximum value of `request`.
    static constexpr std::uint32_t max_request = (1U << 29) - 1;

    bool fence = false;
    /// The number of devices that transfer the data of the receive.
    std::uint32_t rails = 1;
    /// The number of the receive request, as SharedState::wire_number() returns it; not used for a
    /// fence.
    std::uint32_t request = 0;

    [[nodiscard]] std::uint32_t encode() const noexcept {
        return (fence ? 1U : 0U) << 31 | (rails - 1) << 29 | request;
    }
    [[nodiscard]] static Immediate decode(std::uint32_t value) noexcept {
        return {.fence = value >> 31 != 0,
                .rails = (value >> 29 & 3U) + 1,
                .request = value & max_request};
    }
};
static_assert(max_rails <= 4, "Immediate::rails has two bits");

/// The first message that a connector sends on its socket. Before the listener has checked the
/// secret in it, the listener sends nothing and allocates no memory for the peer.
struct ConnectorProof {
    static constexpr std::uint32_t expected_magic = 0x50444452; // "RDDP"
    static constexpr std::uint16_t current_version = 3;

    std::uint32_t magic = expected_magic;
    std::uint16_t version = current_version;
    std::uint16_t reserved = 0;
    /// The secret that Handle::connector_secret() returns. The offset of this member is the same in
    /// every version of the protocol. Therefore a listener can check the secret of a connector of
    /// another version.
    Handle::Secret secret{};
};
static_assert(sizeof(ConnectorProof) == 24 && std::is_trivially_copyable_v<ConnectorProof>);

/// A message on the socket that describes the queue pairs and limits of the end that sends it. The
/// listener sends its Hello first; then the connector sends its Hello.
struct Hello {
    static constexpr std::uint32_t expected_magic = 0x4c444452; // "RDDL"
    static constexpr std::uint16_t current_version = 3;

    std::uint32_t magic = expected_magic;
    std::uint16_t version = current_version;
    std::uint16_t rails = 0;
    /// In the Hello of the listener: the secret that Handle::listener_secret() returns. In the
    /// Hello of the connector, this member is not used.
    Handle::Secret secret{};
    /// The errno value with which this end failed to create its queue pairs; 0 if they were
    /// created.
    std::uint32_t error = 0;
    /// Maximum length of an eager message that this end can receive, in bytes.
    std::uint32_t eager_limit = 0;
    /// Maximum number of bytes of eager messages that may wait at this end for a receive.
    std::uint32_t unexpected_limit = 0;
    /// Maximum number of bytes of notifications that may wait at this end for the program.
    std::uint32_t notification_limit = 0;
    /// 0 if EndpointOptions::keep_sockets of this end is false. If it is 0 in the Hello of one end,
    /// both ends close the socket after the channel is connected.
    std::uint32_t keep_socket = 1;
    std::uint32_t reserved = 0;
    /// The maximum message length of the ports of this end, in bytes.
    std::uint64_t max_message_size = 0;
    /// The address of memory whose contents are not used. Keepalive writes and fence reads of the
    /// peer access it.
    std::uint64_t probe_address = 0;
    /// The rkeys of the memory at probe_address, for each device.
    std::array<std::uint32_t, max_rails> probe_rkeys{};
    std::array<std::array<std::byte, QueuePairAddress::wire_size>, max_rails> addresses{};
};
static_assert(std::is_trivially_copyable_v<Hello>);

/// The last message that each end sends on the socket: the errno value with which this end failed
/// to connect its queue pairs, or 0.
using ConnectResult = std::uint32_t;

} // namespace rdmabuf::transport::detail
