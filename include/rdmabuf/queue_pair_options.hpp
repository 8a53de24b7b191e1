// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include <rdmabuf/access.hpp>
#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/queue_pair_address.hpp>
#include <rdmabuf/shared_receive_queue.hpp>
#include <rdmabuf/xrc_domain.hpp>

namespace rdmabuf {

/// Selects whether a queue pair has the ibv_wr_* interface, which QueuePair::batch() needs.
enum class ExtendedInterface : std::uint8_t {
    off,
    /// The queue pair gets the ibv_wr_* interface if the provider has this interface.
    automatic,
    /// Creating the queue pair fails if the provider does not have the ibv_wr_* interface.
    required,
};

struct QueuePairOptions {
    CompletionQueue send_cq;
    CompletionQueue recv_cq;
    QueuePairType type = QueuePairType::reliable_connected;

    /// The maximum number of outstanding requests in the send queue. The device can round up this
    /// limit and the four limits below.
    std::uint32_t max_send_wr = 128;
    /// The maximum number of posted receives. This limit is not used if `srq` is set.
    std::uint32_t max_recv_wr = 128;
    /// The maximum number of scatter-gather entries of a request in the send queue.
    std::uint32_t max_send_sge = 1;
    /// The maximum number of scatter-gather entries of a receive. This limit is not used if `srq`
    /// is set.
    std::uint32_t max_recv_sge = 1;
    /// The maximum number of inline bytes of a request (SendFlags::inline_data); 0 for no inline
    /// data.
    std::uint32_t max_inline_data = 0;
    /// If true, every request in the send queue is signaled, even without SendFlags::signaled.
    bool signal_all = false;
    /// The shared receive queue of the queue pair; nullptr if the queue pair has its own receive
    /// queue.
    const SharedReceiveQueue* srq = nullptr;
    /// The XRC domain of the queue pair. It must be set for queue pairs of the type xrc_receive,
    /// and must be nullptr for other types.
    const XrcDomain* xrc_domain = nullptr;
    ExtendedInterface extended = ExtendedInterface::automatic;
    /// Allows libmlx5 to deliver small received data in the completion entry (scatter-to-CQE),
    /// which saves one PCIe write. When the completion is polled, the CPU copies up to 64 bytes to
    /// the address in the request. The copy is made for receives and, with `signal_all`, for the
    /// results of reads and atomics. Set this option only if all these requests use host memory
    /// whose iova is equal to its CPU address. With memory of a GPU or of the NIC, the copy would
    /// crash the program or corrupt memory. Devices of other drivers ignore this option.
    /// mlx5dv_create_qp(3).
    bool scatter_to_cqe = false;
    /// Allows the device to place data and consume receives out of order, so that packets can use
    /// several network paths at the same time (MLX5DV_QP_CREATE_OOO_DP). Completions stay in order,
    /// and each has the wr_id of the receive that it consumed. The data of an earlier write can
    /// become visible after the data of a later write. Both sides of a connection must set this
    /// option. Creating the queue pair fails with EOPNOTSUPP on devices other than mlx5, and if the
    /// device or the kernel does not support the option. mlx5dv_create_qp(3).
    bool out_of_order_placement = false;
    /// The operations that batch() needs in addition to sends, writes, reads and atomics, as
    /// IBV_QP_EX_WITH_* bits: LOCAL_INV, BIND_MW, SEND_WITH_INV, ATOMIC_WRITE. If the provider does
    /// not support one of these operations, the queue pair gets no ibv_wr_* interface. In this
    /// case, creating the queue pair fails if `extended` is ExtendedInterface::required.
    std::uint64_t batch_operations = 0;

    /// The operations that this queue pair permits to peers. The memory region must also permit the
    /// operation. The default is all operations that the queue pair type and the device support.
    /// For SRD queue pairs, which cannot restrict peers, this option must be empty (EOPNOTSUPP).
    std::optional<Access> access = std::nullopt;
    std::uint8_t port = 1;
    /// The index of the queue pair's GID in the GID table of the port. The default is the index
    /// that Context::best_gid() returns on RoCE, no GID on InfiniBand, and index 0 for SRD queue
    /// pairs.
    std::optional<std::uint8_t> gid_index = std::nullopt;
    std::uint16_t pkey_index = 0;
    /// The maximum path MTU; the default is the active MTU of the port. A connection uses the
    /// smaller MTU of its two sides.
    std::optional<ibv_mtu> mtu = std::nullopt;
    std::uint8_t service_level = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 64;
    /// The flow label of the GRH, 20 bits. See AddressHandleOptions::flow_label.
    std::uint32_t flow_label = 0;
    /// The maximum rate of the packets; IBV_RATE_MAX for no limit.
    ibv_rate static_rate = IBV_RATE_MAX;
    /// The low bits of the source LID (InfiniBand). See AddressHandleOptions::src_path_bits.
    std::uint8_t src_path_bits = 0;
    /// The maximum number of outstanding reads and atomics that this queue pair sends as the
    /// initiator. A value above the device's limit is reduced to that limit.
    std::uint8_t max_rd_atomic = 16;
    /// The maximum number of outstanding reads and atomics of the peer that this queue pair
    /// executes as the target. A value above the device's limit is reduced to that limit.
    std::uint8_t max_dest_rd_atomic = 16;

    /// The time for which the NIC waits for an acknowledgement (RC): 4.096 us * 2^`timeout`. With
    /// 0, the NIC waits without limit.
    std::uint8_t timeout = 14;
    /// The maximum number of retransmissions of a request (RC): 0 to 7. The NIC retransmits when
    /// `timeout` has expired. If no retransmission succeeds, the request fails with
    /// IBV_WC_RETRY_EXC_ERR.
    std::uint8_t retry_count = 7;
    /// The maximum number of times that the NIC repeats a request because the peer has no receive
    /// posted: 0 to 6, or 7 for no limit. If no retry succeeds, the request fails with
    /// IBV_WC_RNR_RETRY_EXC_ERR. On SRD queue pairs, values below 7 need SrdAttributes::rnr_retry.
    std::uint8_t rnr_retry = 7;
    /// The time for which the peer must wait after an RNR NAK before it repeats the request (RC).
    /// This queue pair sends an RNR NAK if it has no receive posted. The value is an index into the
    /// table of ibv_modify_qp(3); 12 means 0.64 ms.
    std::uint8_t min_rnr_timer = 12;
    /// The Q_Key that requests of peers must contain (UD and SRD only).
    std::uint32_t qkey = 0x11111111;
};

} // namespace rdmabuf
