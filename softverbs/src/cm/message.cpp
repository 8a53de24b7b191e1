// SPDX-License-Identifier: BSD-3-Clause
#include "cm/message.hpp"

#include <sys/socket.h>

#include <cstring>

#include "fabric/random.hpp"

namespace softverbs::cm {

namespace {

constexpr std::uint32_t largest_24_bits = 0xffffff;
constexpr std::uint8_t largest_3_bits = 7;
constexpr std::uint8_t largest_4_bits = 15;

bool is_request(MessageType type) noexcept {
    return type == MessageType::req || type == MessageType::sidr_req;
}

/// Returns the maximum length in bytes of the private data in this type of message.
std::size_t most_private_data(MessageType type) noexcept {
    switch (type) {
        case MessageType::req:
            return private_data::req;
        case MessageType::rej:
            return private_data::rej;
        case MessageType::rep:
            return private_data::rep;
        case MessageType::sidr_req:
            return private_data::sidr_req;
        case MessageType::sidr_rep:
            return private_data::sidr_rep;
        default:
            return 0; // softverbs sends no private data in the other messages
    }
}

bool is_valid(const WireAddress& address) noexcept {
    return address.family == AF_INET || address.family == AF_INET6 || address.family == family_ib;
}

} // namespace

WireAddress wire(const Address& address) noexcept {
    return {address.gid(), address.family(), address.port()};
}

Address unwire(const WireAddress& wire, std::uint16_t port_space) {
    Address address = Address::from_gid(wire.address, wire.family);
    address.set_service_port_space(port_space);
    address.set_port(wire.port);
    return address;
}

void set_private_data(Message& message, const std::uint8_t* data, std::size_t size) noexcept {
    message.private_data_size = static_cast<std::uint8_t>(size);
    std::memcpy(message.private_data.data(), data, size);
}

std::uint32_t random_psn() noexcept {
    return fabric::random_number(std::uint32_t{1}) & largest_24_bits;
}

bool is_valid(const Message& message) noexcept {
    return message.magic == Message::current_magic && message.type >= MessageType::req &&
           message.type <= MessageType::sidr_rep &&
           message.private_data_size <= most_private_data(message.type) &&
           message.qp_num <= largest_24_bits && message.psn <= largest_24_bits &&
           message.mtu <= largest_4_bits && message.flow_control <= 1 && message.srq <= 1 &&
           message.retry_count <= largest_3_bits && message.rnr_retry_count <= largest_3_bits &&
           (!is_request(message.type) ||
            (is_valid(message.source) && is_valid(message.destination)));
}

} // namespace softverbs::cm
