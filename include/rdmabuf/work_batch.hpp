// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/memory_window.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/work_request.hpp>

namespace rdmabuf {

/// A batch of send-side requests for the ibv_wr_* interface. The provider writes each request
/// directly into the send queue, without an ibv_send_wr. QueuePair::batch() opens a batch, the
/// functions below add requests, and complete() posts all requests or none. If the batch is
/// destroyed without complete(), no request is posted. complete() returns the errors of all
/// requests, such as a full queue or too many entries. ibv_wr_post(3).
///
/// librxe before rdma-core 64 sends no data for inline data with several entries, but reports
/// success. With such a librxe, use one entry or QueuePair::post_send().
///
/// The provider may hold a lock of the queue pair until the batch is completed or destroyed. Only
/// add requests in this time, and only in one thread.
class RDMABUF_EXPORT WorkBatch {
  public:
    WorkBatch(WorkBatch&& other) noexcept : qp_(std::exchange(other.qp_, nullptr)) {}
    WorkBatch& operator=(WorkBatch&&) = delete;
    WorkBatch(const WorkBatch&) = delete;
    WorkBatch& operator=(const WorkBatch&) = delete;
    [[gnu::always_inline]] ~WorkBatch() {
        if (qp_ != nullptr) {
            ibv_wr_abort(qp_);
        }
    }

    [[gnu::always_inline]] void send(std::span<const ibv_sge> local,
                                     WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_send(qp_);
        set_data(local, options);
    }
    [[gnu::always_inline]] void send_imm(std::span<const ibv_sge> local, std::uint32_t immediate,
                                         WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_send_imm(qp_, htobe32(immediate));
        set_data(local, options);
    }
    [[gnu::always_inline]] void send_to(std::span<const ibv_sge> local, Destination to,
                                        WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_send(qp_);
        ibv_wr_set_ud_addr(qp_, to.ah, to.queue_pair, to.qkey);
        set_data(local, options);
    }
    [[gnu::always_inline]] void send_imm_to(std::span<const ibv_sge> local, Destination to,
                                            std::uint32_t immediate,
                                            WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_send_imm(qp_, htobe32(immediate));
        ibv_wr_set_ud_addr(qp_, to.ah, to.queue_pair, to.qkey);
        set_data(local, options);
    }
    [[gnu::always_inline]] void write(std::span<const ibv_sge> local, RemoteAddress remote,
                                      WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_rdma_write(qp_, remote.rkey, remote.address);
        set_data(local, options);
    }
    [[gnu::always_inline]] void write_imm(std::span<const ibv_sge> local, RemoteAddress remote,
                                          std::uint32_t immediate,
                                          WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_rdma_write_imm(qp_, remote.rkey, remote.address, htobe32(immediate));
        set_data(local, options);
    }
    [[gnu::always_inline]] void read(std::span<const ibv_sge> local, RemoteAddress remote,
                                     WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_rdma_read(qp_, remote.rkey, remote.address);
        set_data(local, options);
    }
    /// Adds an RDMA write to memory of the peer @p to, for SRD queue pairs. Call this function only
    /// if the device supports RDMA writes (SrdAttributes::rdma_write). On other devices, the
    /// provider's function can be null. QueuePair::post_write_to() checks the support of the
    /// device; this function does not.
    [[gnu::always_inline]] void write_to(std::span<const ibv_sge> local, Destination to,
                                         RemoteAddress remote, WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_rdma_write(qp_, remote.rkey, remote.address);
        ibv_wr_set_ud_addr(qp_, to.ah, to.queue_pair, to.qkey);
        set_data(local, options);
    }
    [[gnu::always_inline]] void write_imm_to(std::span<const ibv_sge> local, Destination to,
                                             RemoteAddress remote, std::uint32_t immediate,
                                             WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_rdma_write_imm(qp_, remote.rkey, remote.address, htobe32(immediate));
        ibv_wr_set_ud_addr(qp_, to.ah, to.queue_pair, to.qkey);
        set_data(local, options);
    }
    [[gnu::always_inline]] void read_from(std::span<const ibv_sge> local, Destination from,
                                          RemoteAddress remote, WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_rdma_read(qp_, remote.rkey, remote.address);
        ibv_wr_set_ud_addr(qp_, from.ah, from.queue_pair, from.qkey);
        set_data(local, options);
    }
    [[gnu::always_inline]] void compare_swap(const ibv_sge& local, RemoteAddress remote,
                                             std::uint64_t expected, std::uint64_t swap,
                                             WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_atomic_cmp_swp(qp_, remote.rkey, remote.address, expected, swap);
        ibv_wr_set_sge(qp_, local.lkey, local.addr, local.length);
    }
    [[gnu::always_inline]] void fetch_add(const ibv_sge& local, RemoteAddress remote,
                                          std::uint64_t addend, WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_atomic_fetch_add(qp_, remote.rkey, remote.address, addend);
        ibv_wr_set_sge(qp_, local.lkey, local.addr, local.length);
    }

    // The four functions below need the corresponding bits in QueuePairOptions::batch_operations.

    /// Adds a message that also invalidates @p rkey at the receiver. See make_send_inv().
    [[gnu::always_inline]] void send_inv(std::span<const ibv_sge> local, std::uint32_t rkey,
                                         WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_send_inv(qp_, rkey);
        set_data(local, options);
    }
    /// Adds a request that invalidates @p rkey of a local memory window. See make_local_inv().
    [[gnu::always_inline]] void local_inv(std::uint32_t rkey, WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_local_inv(qp_, rkey);
    }
    /// Adds a request that binds a memory window of type 2. After the batch was posted, pass @p
    /// rkey to window.set_rkey().
    /// @param rkey  window.next_rkey()
    [[gnu::always_inline]] void bind(const MemoryWindow& window, std::uint32_t rkey,
                                     const MemoryWindowBinding& binding,
                                     WorkOptions options = {}) noexcept {
        begin(options);
        const ibv_mw_bind_info part = binding.native();
        ibv_wr_bind_mw(qp_, window.native(), rkey, &part);
    }
    /// Adds an atomic write of the eight bytes of @p value, in host byte order, to an address that
    /// is a multiple of 8. Atomic means that the memory has either the old or the new eight bytes.
    /// Earlier writes of this queue pair become visible before this write. Only RC queue pairs and
    /// the ibv_wr_* interface support this operation. The program must be compiled with the headers
    /// of rdma-core 44 or newer, which have ibv_wr_atomic_write(3).
    template <class ExtendedQueuePair = ibv_qp_ex>
    requires requires(ExtendedQueuePair* qp) { qp->wr_atomic_write; }
    [[gnu::always_inline]] void atomic_write(std::uint64_t value, RemoteAddress remote,
                                             WorkOptions options = {}) noexcept {
        begin(options);
        ExtendedQueuePair* const qp = qp_;
        qp->wr_atomic_write(qp, remote.rkey, remote.address, &value);
    }

    /// Returns the extended queue pair, for ibv_wr_* functions of the provider between the requests
    /// of this batch, such as mlx5dv_wr_mr_interleaved(3). The caller must set wr_id and wr_flags
    /// before each request, and must not start, complete or abort the batch. Functions of a
    /// provider need a queue pair that was created for them with mlx5dv_create_qp(3) and wrapped
    /// with QueuePair::borrow().
    ///
    /// RDMA FLUSH is also used in this way. libibverbs has ibv_wr_flush(3) since rdma-core 45, and
    /// only librxe supports it (as of rdma-core 65). Set IBV_QP_EX_WITH_FLUSH in
    /// QueuePairOptions::batch_operations, register the target with Access::flush_global or
    /// flush_persistent, and compile the program with rdma-core 45 or newer.
    [[nodiscard]] ibv_qp_ex* native() const noexcept { return qp_; }

    /// Posts all requests and closes the batch.
    /// @return ENOMEM if the queue is full, EINVAL for an invalid request. After an error, no
    ///         request is posted.
    [[gnu::always_inline]] CallStatus complete() noexcept {
        return {Status(ibv_wr_complete(std::exchange(qp_, nullptr))), "ibv_wr_complete"};
    }

  private:
    friend class QueuePair;
    [[gnu::always_inline]] explicit WorkBatch(ibv_qp_ex* qp) noexcept : qp_(qp) {
        ibv_wr_start(qp_);
    }

    [[gnu::always_inline]] void begin(WorkOptions options) noexcept {
        qp_->wr_id = options.wr_id;
        qp_->wr_flags = static_cast<unsigned>(options.flags);
    }
    [[gnu::always_inline]] void set_data(std::span<const ibv_sge> local,
                                         WorkOptions options) noexcept {
        assert(detail::may_be_sent(local, options) &&
               "the CPU cannot read the memory of inline data");
        if ((static_cast<unsigned>(options.flags) & IBV_SEND_INLINE) != 0) {
            set_inline_data(local);
        } else if (local.size() == 1) {
            ibv_wr_set_sge(qp_, local[0].lkey, local[0].addr, local[0].length);
        } else {
            ibv_wr_set_sge_list(qp_, local.size(), local.data());
        }
    }
    void set_inline_data(std::span<const ibv_sge> local) noexcept;

    ibv_qp_ex* qp_;
};

} // namespace rdmabuf
