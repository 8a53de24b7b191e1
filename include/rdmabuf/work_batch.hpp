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
#include <rdmabuf/memory_window.hpp>
#include <rdmabuf/remote_region.hpp>
#include <rdmabuf/status.hpp>
#include <rdmabuf/work_request.hpp>

namespace rdmabuf {

/// Requests built straight into the send queue by the provider's ibv_wr_* functions, without
/// ibv_send_wr in between. Open one with QueuePair::batch(), add requests, complete(): all of them
/// are posted, or none. A batch that goes without complete() is dropped whole. Errors in a request
/// (full queue, too many entries) come out of complete(). ibv_wr_post(3).
///
/// librxe (up to rdma-core 60, the newest looked at) sends nothing of inline data that comes in
/// several entries, and reports success: use one entry there, or QueuePair::post_send.
///
/// The provider may hold a lock of the queue pair between opening and completing: add requests and
/// nothing else, in one thread.
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
    /// RDMA of an SRD queue pair, which names the peer. Call it only if the device supports it
    /// (SrdAttributes), or the provider's function may be null. QueuePair::post_write_to() and
    /// post_read_from() check that.
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

    // The provider has the next four only if QueuePairOptions::batch_operations requests them.

    /// A message that also invalidates @p rkey at the receiver. See make_send_inv.
    [[gnu::always_inline]] void send_inv(std::span<const ibv_sge> local, std::uint32_t rkey,
                                         WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_send_inv(qp_, rkey);
        set_data(local, options);
    }
    /// Invalidates @p rkey of a local memory window. See make_local_inv.
    [[gnu::always_inline]] void local_inv(std::uint32_t rkey, WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_local_inv(qp_, rkey);
    }
    /// Binds a window of type 2. When the batch was posted, pass @p rkey to window.set_rkey().
    /// @param rkey  window.next_rkey()
    [[gnu::always_inline]] void bind(const MemoryWindow& window, std::uint32_t rkey,
                                     const MemoryWindowBinding& binding,
                                     WorkOptions options = {}) noexcept {
        begin(options);
        const ibv_mw_bind_info part = binding.native();
        ibv_wr_bind_mw(qp_, window.native(), rkey, &part);
    }
    /// Writes the eight bytes of @p value, in host byte order, to an address that is a multiple of
    /// 8. The target's memory has the old bytes or the new ones, never a part of both. Earlier
    /// writes of this queue pair are visible before. RC. libibverbs has this operation only in the
    /// ibv_wr_* interface.
    [[gnu::always_inline]] void atomic_write(std::uint64_t value, RemoteAddress remote,
                                             WorkOptions options = {}) noexcept {
        begin(options);
        ibv_wr_atomic_write(qp_, remote.rkey, remote.address, &value);
    }

    /// The extended queue pair, for calling ibv_wr_* functions of the provider, such as
    /// mlx5dv_wr_mr_interleaved(3), between the requests of this batch. The caller sets wr_id and
    /// wr_flags before each request, and does not start, complete or abort the batch. Functions of
    /// a provider need a queue pair that was created for them, with mlx5dv_create_qp(3), and used
    /// here with QueuePair::borrow().
    ///
    /// RDMA FLUSH is also used in this way, because libibverbs has it only since rdma-core 45 and,
    /// of its providers, only librxe has it (as of rdma-core 65): request IBV_QP_EX_WITH_FLUSH in
    /// QueuePairOptions::batch_operations, register the target with Access::flush_global or
    /// flush_persistent, and call ibv_wr_flush(3) in a program built with such a version.
    [[nodiscard]] ibv_qp_ex* native() const noexcept { return qp_; }

    /// Posts the requests and closes the batch. On failure none was posted: ENOMEM when the queue
    /// is full, EINVAL for a bad request.
    [[gnu::always_inline]] Status complete() noexcept {
        return Status(ibv_wr_complete(std::exchange(qp_, nullptr)));
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
