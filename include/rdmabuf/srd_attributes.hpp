// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace rdmabuf {

/// What an EFA device supports on SRD queue pairs (QueuePairType::scalable_reliable_datagram). The
/// maximum size of a sent message is Context::max_message_size(). efadv_query_device(3).
struct SrdAttributes {
    /// RDMA reads. A read has one scatter/gather entry.
    bool rdma_read = false;
    /// RDMA writes, also those with immediate data. A write has one scatter/gather entry and no
    /// inline data.
    bool rdma_write = false;
    /// Maximum size of one RDMA read or write in bytes; 0 without RDMA.
    std::uint32_t max_rdma_size = 0;
    /// QueuePairOptions::rnr_retry may have other values than 7, which retries without limit.
    bool rnr_retry = false;
    /// An SrdCompletionQueue can be created, which reports the GIDs of unknown senders.
    bool sender_gid = false;
    /// Limits of the QueuePairOptions with the same names.
    std::uint32_t max_send_wr = 0;
    std::uint32_t max_recv_wr = 0;
    std::uint32_t max_send_sge = 0;
    std::uint32_t max_recv_sge = 0;
    std::uint32_t max_inline_data = 0;
};

} // namespace rdmabuf
