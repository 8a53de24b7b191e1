// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/options.hpp>

namespace rdmabuf::transport::detail {

/// Returns the options that are the same for all queue pairs of an endpoint, those of channels, the
/// loopback queue pairs and the SetupQueuePair: the completion queue of the device, and the network
/// options such as port and GID.
inline QueuePairOptions queue_pair_options(const SharedRail& rail, const EndpointOptions& options) {
    return {.send_cq = rail.cq,
            .recv_cq = rail.cq,
            .extended = ExtendedInterface::off,
            .port = options.port,
            .gid_index = options.gid_index,
            .pkey_index = options.pkey_index,
            .service_level = options.service_level,
            .traffic_class = options.traffic_class,
            .flow_label = options.flow_label};
}

/// Returns the options for one queue pair of a channel.
/// @param number  the index of this queue pair among the queue pairs of the channel on this device
inline QueuePairOptions channel_queue_pair_options(const SharedRail& rail,
                                                   const EndpointOptions& all, std::uint32_t number,
                                                   std::uint32_t inline_data) {
    // The RNR NAK timer code for 0.02 ms: the peer sends again after this time if no receive was
    // posted. The time is short, because new receives are posted quickly.
    constexpr std::uint8_t rnr_timer = 2;
    constexpr std::uint32_t flow_label_mask = (1U << 20U) - 1;
    QueuePairOptions options = queue_pair_options(rail, all);
    options.max_send_wr = rail.send_depth;
    options.max_recv_wr = 0;
    options.max_send_sge = 2;
    options.max_inline_data = inline_data;
    options.srq = &rail.srq;
    options.timeout = all.ack_timeout;
    options.retry_count = all.retry_count;
    options.min_rnr_timer = rnr_timer;
    options.flow_label = all.flow_label == 0 ? 0 : (all.flow_label + number) & flow_label_mask;
    return options;
}

} // namespace rdmabuf::transport::detail
