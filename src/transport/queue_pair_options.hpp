// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdmabuf/queue_pair_options.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/options.hpp>

namespace rdmabuf::transport::detail {

/// Returns the options that all queue pairs of an endpoint with packets to a peer share: the
/// completion queue of the device, and the path to the peer.
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

} // namespace rdmabuf::transport::detail
