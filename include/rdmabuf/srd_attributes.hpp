// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace rdmabuf {

/// The features and limits of an EFA device for SRD queue pairs
/// (QueuePairType::scalable_reliable_datagram). Context::max_message_size() returns the maximum
/// size of a sent message. efadv_query_device(3).
struct SrdAttributes {
    /// True if the device supports RDMA reads. A read can have only one scatter-gather entry.
    bool rdma_read = false;
    /// True if the device supports RDMA writes, also with immediate data. A write can have only one
    /// scatter-gather entry, and no inline data.
    bool rdma_write = false;
    /// The maximum size of one RDMA read or write in bytes; 0 if the device has no RDMA.
    std::uint32_t max_rdma_size = 0;
    /// True if QueuePairOptions::rnr_retry may be less than 7. With the value 7, the NIC retries
    /// without limit.
    bool rnr_retry = false;
    /// True if an SrdCompletionQueue, which reports the GIDs of unknown senders, can be created.
    bool sender_gid = false;
    /// The five members below are the maximum values of the members of QueuePairOptions with the
    /// same names.
    std::uint32_t max_send_wr = 0;
    std::uint32_t max_recv_wr = 0;
    std::uint32_t max_send_sge = 0;
    std::uint32_t max_recv_sge = 0;
    std::uint32_t max_inline_data = 0;
};

} // namespace rdmabuf
