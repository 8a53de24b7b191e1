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

/// Transport of a queue pair.
enum class QueuePairType : std::uint8_t {
    reliable_connected = IBV_QPT_RC,
    unreliable_connected = IBV_QPT_UC,
    unreliable_datagram = IBV_QPT_UD,
    /// Scalable Reliable Datagram (SRD) of EFA, the Elastic Fabric Adapter of Amazon, which has no
    /// RC queue pairs. One queue pair exchanges messages and RDMA with any number of peers, as a UD
    /// queue pair does: it is activated, not connected, and each request names its destination (see
    /// AddressHandle and Destination). Each request is carried out exactly once, or fails.
    ///
    /// Nothing is ordered. Messages to one peer arrive in any order, requests complete in any
    /// order, and a message that follows an RDMA write may arrive before the data of the write.
    /// Only the completion of the write, or its immediate data, means that the data is in place. A
    /// request that fails has no effect on the queue pair or on other requests.
    ///
    /// - All requests must be signaled (EINVAL).
    /// - Messages have at most Context::max_message_size() bytes.
    /// - RDMA needs the ibv_wr_* interface and a device that supports it: see
    ///   Context::srd_attributes(). It also needs an AddressHandle for the initiator in the
    ///   protection domain of the target (otherwise IBV_WC_REM_OP_ERR).
    /// - There are no atomics, fences, solicited events, shared receive queues or access flags.
    /// - A completed RDMA read has the opcode IBV_WC_SEND.
    scalable_reliable_datagram = IBV_QPT_DRIVER,
    /// The sending end of an XRC connection: see XrcDomain. It has no receives, and its requests
    /// are posted by QueuePair::post_to_srq().
    xrc_send = IBV_QPT_XRC_SEND,
    /// The receiving end of an XRC connection. It can neither send nor take receives.
    xrc_receive = IBV_QPT_XRC_RECV,
};
/// "RC", "UC", "UD", "SRD", "XRC_SEND" or "XRC_RECV".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(QueuePairType type) noexcept;

/// What a peer must know to connect to, or to send datagrams to, a queue pair.
struct RDMABUF_EXPORT QueuePairAddress {
    QueuePairType type = QueuePairType::reliable_connected;
    /// 24 bits.
    std::uint32_t number = 0;
    /// The packet sequence number it begins with; 24 bits.
    std::uint32_t psn = 0;
    /// Q_Key that UD and SRD requests must carry; 0 for connected queue pairs.
    std::uint32_t qkey = 0;
    /// All zero on an InfiniBand subnet without GRH.
    Gid gid = {};
    /// Local identifier; 0 on RoCE.
    std::uint16_t lid = 0;
    /// The largest it can take: both sides use the smaller one.
    ibv_mtu mtu = IBV_MTU_1024;
    /// Reads and atomics it serves at once.
    std::uint8_t max_dest_rd_atomic = 1;

    /// Bytes of the wire form.
    static constexpr std::size_t wire_size = 40;
    /// The wire form: little-endian, versioned, of fixed size.
    [[nodiscard]] std::array<std::byte, wire_size> encode() const noexcept;
    /// Reads a wire form. Any bytes give an address or an error: EMSGSIZE for another size, EPROTO
    /// for bytes that are no address, EPROTONOSUPPORT for another version.
    [[nodiscard]] static Result<QueuePairAddress> decode(std::span<const std::byte> bytes) noexcept;

    friend bool operator==(const QueuePairAddress&, const QueuePairAddress&) noexcept = default;
};

} // namespace rdmabuf
