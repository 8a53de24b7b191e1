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
    /// RC queue pairs. An SRD queue pair exchanges messages and RDMA with any number of peers. Like
    /// a UD queue pair, an SRD queue pair is activated instead of connected, and each request names
    /// its destination (AddressHandle, Destination). Each request is executed exactly once, or
    /// fails.
    ///
    /// The order is not guaranteed. Messages to one peer arrive in any order, requests complete in
    /// any order, and a message that follows an RDMA write may arrive before the data of the write.
    /// The data of a write is in place when the write has completed, or when its immediate data has
    /// arrived. A request that fails has no effect on the queue pair or on other requests.
    ///
    /// - All requests must be signaled (EINVAL).
    /// - Messages have at most Context::max_message_size() bytes.
    /// - RDMA needs the ibv_wr_* interface and a device that supports RDMA: see
    ///   Context::srd_attributes(). The protection domain of the target must have an
    ///   AddressHandle for the initiator: without it, RDMA fails with IBV_WC_REM_OP_ERR.
    /// - SRD has no atomics, fences, solicited events, shared receive queues or access flags.
    /// - The completion of an RDMA read has the opcode IBV_WC_SEND.
    scalable_reliable_datagram = IBV_QPT_DRIVER,
    /// The queue pair at the sending side of an XRC connection: see XrcDomain. No receives can be
    /// posted to this queue pair. QueuePair::post_to_srq() posts requests to it.
    xrc_send = IBV_QPT_XRC_SEND,
    /// The queue pair at the receiving side of an XRC connection. Neither requests nor receives can
    /// be posted to this queue pair. Messages consume receives of shared receive queues.
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
    /// The Q_Key that requests to this UD or SRD queue pair must contain; 0 for connected queue
    /// pairs.
    std::uint32_t qkey = 0;
    /// The GID of the port. All bytes are zero on InfiniBand if QueuePairOptions::gid_index is not
    /// set: packets then have no GRH.
    Gid gid = {};
    /// The local identifier (LID) of the port; 0 on RoCE.
    std::uint16_t lid = 0;
    /// The maximum path MTU of this queue pair. A connection uses the smaller MTU of its two sides.
    ibv_mtu mtu = IBV_MTU_1024;
    /// The maximum number of outstanding RDMA reads and atomics from the peer that this queue pair
    /// executes as the target.
    std::uint8_t max_dest_rd_atomic = 1;

    /// The size of the wire format in bytes.
    static constexpr std::size_t wire_size = 40;
    /// Returns the address in the wire format, which is little-endian and contains a version
    /// number.
    [[nodiscard]] std::array<std::byte, wire_size> encode() const noexcept;
    /// Decodes an address from the wire format. The bytes can come from an untrusted peer.
    /// @return the address, or an error: EMSGSIZE if the size is not wire_size, EPROTO if the bytes
    ///         are not a valid address, EPROTONOSUPPORT if the version is not supported
    [[nodiscard]] static Result<QueuePairAddress> decode(std::span<const std::byte> bytes) noexcept;

    friend bool operator==(const QueuePairAddress&, const QueuePairAddress&) noexcept = default;
};

} // namespace rdmabuf
