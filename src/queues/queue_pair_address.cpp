// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <rdmabuf/queue_pair.hpp>

#include "base/wire_format.hpp"

namespace rdmabuf {
namespace {

constexpr detail::WireHeader address_header{{'R', 'D', 'Q', 'P'}, 1};
constexpr std::uint32_t max_24_bits = 0xffffff;

bool is_type(std::uint8_t type) noexcept {
    return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD ||
           type == IBV_QPT_DRIVER || type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

} // namespace

const char* to_string(QueuePairType type) noexcept {
    switch (type) {
        case QueuePairType::reliable_connected:
            return "RC";
        case QueuePairType::unreliable_connected:
            return "UC";
        case QueuePairType::unreliable_datagram:
            return "UD";
        case QueuePairType::scalable_reliable_datagram:
            return "SRD";
        case QueuePairType::xrc_send:
            return "XRC_SEND";
        case QueuePairType::xrc_receive:
            return "XRC_RECV";
    }
    return "unknown";
}

std::array<std::byte, QueuePairAddress::wire_size> QueuePairAddress::encode() const noexcept {
    std::array<std::byte, wire_size> bytes{};
    detail::WireWriter writer(bytes, address_header);
    writer.put(static_cast<std::uint8_t>(type));
    writer.put(static_cast<std::uint8_t>(mtu));
    writer.put(number);
    writer.put(psn);
    writer.put(qkey);
    writer.put(lid);
    writer.put(max_dest_rd_atomic);
    writer.put(std::uint8_t{0}); // reserved
    writer.put_bytes(gid.bytes);
    return bytes;
}

Result<QueuePairAddress> QueuePairAddress::decode(std::span<const std::byte> bytes) noexcept {
    if (bytes.size() != wire_size) {
        return ErrorInfo{EMSGSIZE, "decode",
                         bytes.size() < wire_size
                             ? "a queue pair address has 40 bytes: truncated"
                             : "a queue pair address has 40 bytes: more follow"};
    }
    detail::WireReader reader(bytes);
    if (const auto problem = reader.check(address_header); problem.error() != 0) {
        return problem;
    }
    const auto type = reader.get<std::uint8_t>();
    const auto mtu = reader.get<std::uint8_t>();
    QueuePairAddress address;
    address.number = reader.get<std::uint32_t>();
    address.psn = reader.get<std::uint32_t>();
    address.qkey = reader.get<std::uint32_t>();
    address.lid = reader.get<std::uint16_t>();
    address.max_dest_rd_atomic = reader.get<std::uint8_t>();
    const auto reserved = reader.get<std::uint8_t>();
    reader.get_bytes(address.gid.bytes);
    if (!is_type(type)) {
        return ErrorInfo{EPROTO, "decode", "this version does not support the queue pair type"};
    }
    if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096) {
        return ErrorInfo{EPROTO, "decode", "the path MTU is not a value of ibv_mtu"};
    }
    if (address.number > max_24_bits || address.psn > max_24_bits) {
        return ErrorInfo{EPROTO, "decode", "a queue pair or packet sequence number above 24 bits"};
    }
    if (reserved != 0) {
        return ErrorInfo{EPROTO, "decode", "reserved bytes are set"};
    }
    address.type = static_cast<QueuePairType>(type);
    address.mtu = static_cast<ibv_mtu>(mtu);
    return address;
}

} // namespace rdmabuf
