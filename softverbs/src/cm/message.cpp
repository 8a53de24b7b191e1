// SPDX-License-Identifier: BSD-3-Clause
#include "cm/message.hpp"

#include <sys/socket.h>

namespace softverbs::cm {

namespace {

constexpr std::uint32_t largest_24_bits = 0xffffff;
constexpr std::uint8_t largest_3_bits = 7;
constexpr std::uint8_t largest_4_bits = 15;

bool is_request(MessageType type) noexcept {
    return type == MessageType::req || type == MessageType::sidr_req;
}

/// Returns the maximum length of the private data in this type of message.
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
