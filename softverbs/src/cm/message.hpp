// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cm/address.hpp"

namespace softverbs::cm {

/// The message types of InfiniBand communication management (IBTA 12.6 and 12.11) that softverbs
/// uses.
enum class MessageType : std::uint8_t {
    req = 1,
    mra,
    rej,
    rep,
    rtu,
    dreq,
    drep,
    sidr_req,
    sidr_rep,
};

/// Reasons in a REJ (IBTA 12.6.7.2).
namespace reject {
inline constexpr std::uint8_t timeout = 4;
inline constexpr std::uint8_t invalid_communication_id = 6;
inline constexpr std::uint8_t invalid_service_id = 8;
inline constexpr std::uint8_t invalid_gid = 12; // of the requester's port
inline constexpr std::uint8_t invalid_mtu = 26;
inline constexpr std::uint8_t consumer_defined = 28;
} // namespace reject

/// Status values in a SIDR_REP (IBTA 12.11.2).
namespace sidr {
inline constexpr std::uint8_t success = 0;
inline constexpr std::uint8_t unsupported = 1;
inline constexpr std::uint8_t rejected = 2;
} // namespace sidr

/// How many times the kernel sends a message if no reply arrives: 1 + CMA_MAX_CM_RETRIES. softverbs
/// sends a message only once, but waits for the reply as long as the kernel.
inline constexpr unsigned max_attempts = 16;
/// Duration of the timewait state as a timeout exponent: 4.096 µs * 2^17, about 0.5 seconds. In
/// this state, packets of a connection that has ended may still arrive.
inline constexpr unsigned timewait_timeout = 17;

/// Converts a timeout exponent to nanoseconds: 4.096 µs * 2^exponent.
[[nodiscard]] constexpr std::uint64_t timeout_ns(unsigned exponent) noexcept {
    return std::uint64_t{4096} << exponent;
}

/// Maximum length in bytes of the private data of a program, for each type of message. Private data
/// has this length on the wire and in the event of the receiver; shorter data is padded with zeros.
/// In a REQ or SIDR_REQ between IP addresses, the IP addressing header (IBTA annex A11) occupies 36
/// of these bytes.
namespace private_data {
inline constexpr std::size_t ip_header = 36;
inline constexpr std::size_t req = 92;
inline constexpr std::size_t rej = 148;
inline constexpr std::size_t rep = 196;
inline constexpr std::size_t sidr_req = 216;
inline constexpr std::size_t sidr_rep = 136;
} // namespace private_data

/// An IP or InfiniBand address in a message. The structure has no padding.
struct WireAddress {
    Gid address;
    std::uint16_t family; // AF_INET, AF_INET6 or family_ib
    std::uint16_t port;
};

/// Converts an address to its form in messages.
[[nodiscard]] WireAddress wire(const Address& address) noexcept;
/// Converts an address from its form in messages. For an InfiniBand address, stores the port space
/// in the service ID.
[[nodiscard]] Address unwire(const WireAddress& wire, std::uint16_t port_space);

/// A message of the connection manager. Numbers are little-endian. The magic number identifies the
/// version of this format; the receiver rejects messages of other versions.
struct Message {
    static constexpr std::uint32_t current_magic = 0x314d4353; // "SCM1"

    std::uint32_t magic;
    MessageType type;
    std::uint8_t status; // the reason of a REJ, the status of a SIDR_REP
    std::uint8_t qp_type;
    std::uint8_t private_data_size;
    std::uint32_t sender_id;    // the sender's communication ID
    std::uint32_t recipient_id; // the recipient's communication ID; 0 if it is unknown
    std::uint16_t port_space;
    std::uint8_t mtu; // enum ibv_mtu
    std::uint8_t flow_control;
    WireAddress source;
    WireAddress destination;
    Gid sgid;
    Gid dgid;
    std::uint16_t slid;
    std::uint16_t dlid;
    std::uint32_t qp_num;
    std::uint32_t psn;
    std::uint32_t qkey;
    std::uint8_t responder_resources;
    std::uint8_t initiator_depth;
    std::uint8_t retry_count;
    std::uint8_t rnr_retry_count;
    std::uint8_t srq;
    std::array<std::uint8_t, 3> reserved;
    std::uint32_t ece_vendor;
    std::uint32_t ece_options;
    std::array<std::uint8_t, 224> private_data;
};
static_assert(std::is_trivially_copyable_v<Message>);
static_assert(std::endian::native == std::endian::little);

void set_private_data(Message& message, const std::uint8_t* data, std::size_t size) noexcept;
[[nodiscard]] std::uint32_t random_psn() noexcept;

/// Returns whether each member of a received message has a value that the corresponding field of an
/// InfiniBand message can have. Members that depend on the state of the recipient are not checked.
[[nodiscard]] bool is_valid(const Message& message) noexcept;

} // namespace softverbs::cm
