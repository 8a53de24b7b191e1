// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/gid.hpp>
#include <rdmabuf/result.hpp>

namespace rdmabuf {

/// The transport service of a queue pair.
enum class QueuePairType : std::uint8_t {
    reliable_connected = IBV_QPT_RC,
    unreliable_connected = IBV_QPT_UC,
    unreliable_datagram = IBV_QPT_UD,
    /// Scalable Reliable Datagram (SRD) of EFA, the Elastic Fabric Adapter of Amazon, which has no
    /// RC queue pairs. An SRD queue pair exchanges messages and RDMA with any number of peers. As a
    /// UD queue pair, it is activated and not connected, and each request names its destination
    /// (AddressHandle, Destination). Each request is executed exactly once, or fails.
    ///
    /// The order is not guaranteed. Messages to one peer arrive in any order, requests complete in
    /// any order, and a message that follows an RDMA write may arrive before the data of the write.
    /// The data of a write is in place when the write has completed, or when its immediate data has
    /// arrived. A request that fails has no effect on the queue pair or on other requests.
    ///
    /// - All requests must be signaled (EINVAL).
    /// - Messages have at most Context::max_message_size() bytes.
    /// - RDMA needs the ibv_wr_* interface and a device that supports RDMA: see
    ///   Context::srd_attributes(). RDMA also needs an AddressHandle for the initiator in the
    ///   protection domain of the target (otherwise IBV_WC_REM_OP_ERR).
    /// - SRD has no atomics, fences, solicited events, shared receive queues or access flags.
    /// - The completion of an RDMA read has the opcode IBV_WC_SEND.
    scalable_reliable_datagram = IBV_QPT_DRIVER,
    /// The sending side of an XRC connection: see XrcDomain. It has no receives.
    /// QueuePair::post_to_srq() posts its requests.
    xrc_send = IBV_QPT_XRC_SEND,
    /// The receiving side of an XRC connection. It can neither send nor have receives: messages are
    /// written to receives of shared receive queues.
    xrc_receive = IBV_QPT_XRC_RECV,
};
/// Returns "RC", "UC", "UD", "SRD", "XRC_SEND" or "XRC_RECV".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(QueuePairType type) noexcept;

/// The address of a queue pair: the data that a peer needs to connect to the queue pair, or to send
/// datagrams to it.
struct RDMABUF_EXPORT QueuePairAddress {
    QueuePairType type = QueuePairType::reliable_connected;
    /// The queue pair number; 24 bits.
    std::uint32_t number = 0;
    /// The packet sequence number of the first packet that the queue pair sends; 24 bits.
    std::uint32_t psn = 0;
    /// The Q_Key that UD and SRD requests must have; 0 for connected queue pairs.
    std::uint32_t qkey = 0;
    /// The GID of the port; all zero on an InfiniBand subnet without GRH.
    Gid gid = {};
    /// The local identifier (LID) of the port; 0 on RoCE.
    std::uint16_t lid = 0;
    /// The maximum path MTU of this side. A connection uses the smaller MTU of the two sides.
    ibv_mtu mtu = IBV_MTU_1024;
    /// The maximum number of outstanding reads and atomics that this side executes as target.
    std::uint8_t max_dest_rd_atomic = 1;

    /// The size of the wire format in bytes.
    static constexpr std::size_t wire_size = 40;
    /// Returns the wire format of the address: little-endian, with a version number, of fixed size.
    [[nodiscard]] std::array<std::byte, wire_size> encode() const noexcept;
    /// Decodes an address from the wire format. The bytes may come from an untrusted peer: invalid
    /// bytes return an error. EMSGSIZE for another size, EPROTO for bytes that are not a valid
    /// address, EPROTONOSUPPORT for another version.
    [[nodiscard]] static Result<QueuePairAddress> decode(std::span<const std::byte> bytes) noexcept;

    friend bool operator==(const QueuePairAddress&, const QueuePairAddress&) noexcept = default;
};

} // namespace rdmabuf
