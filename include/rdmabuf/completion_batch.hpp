// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstdint>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/device_clock.hpp>
#include <rdmabuf/status.hpp>
#include <rdmabuf/work_completion.hpp>

namespace rdmabuf {

/// The completions of an ExtendedCompletionQueue, one after the other, read from the device's own
/// queue entries. ExtendedCompletionQueue::start_poll() starts a batch, and the destructor ends it:
///
///     for (CompletionBatch batch = cq.start_poll(); batch; batch.next()) {
///         handle(batch.wr_id(), batch.status(), batch.timestamp());
///     }
///
/// A loop may leave the batch before all completions are read. The other completions stay in the
/// queue. ibv_create_cq_ex(3).
///
/// The provider may hold the lock of the completion queue while a batch exists: use the batch in
/// one thread, and neither poll nor destroy the queue meanwhile.
///
/// The functions that read the completion may be called while the batch is true. They read a field
/// that must be in ExtendedCompletionQueueOptions::fields: an assertion where assertions are
/// enabled, undefined where they are not.
class RDMABUF_EXPORT CompletionBatch {
  public:
    CompletionBatch(const CompletionBatch&) = delete;
    CompletionBatch& operator=(const CompletionBatch&) = delete;
    [[gnu::always_inline]] ~CompletionBatch() {
        if (cq_ != nullptr) {
            ibv_end_poll(cq_);
        }
    }

    /// Whether there is a completion to read.
    [[nodiscard, gnu::always_inline]] explicit operator bool() const noexcept {
        return result_ == 0;
    }
    /// Goes to the next completion. Only while the batch is true.
    [[gnu::always_inline]] void next() noexcept { result_ = ibv_next_poll(cq_); }
    /// Success while there is a completion, and when the queue is empty. Otherwise the errno of
    /// ibv_start_poll(3) or ibv_next_poll(3): the queue is broken, because it overran or the device
    /// failed.
    [[nodiscard]] Status error() const noexcept {
        if (result_ == 0 || result_ == ENOENT) {
            return {};
        }
        return Status(result_ > 0 ? result_ : EIO);
    }

    [[nodiscard]] std::uint64_t wr_id() const noexcept { return cq_->wr_id; }
    [[nodiscard]] ibv_wc_status status() const noexcept { return cq_->status; }
    [[nodiscard]] bool succeeded() const noexcept { return cq_->status == IBV_WC_SUCCESS; }
    /// Only of a completion that succeeded, like all functions below.
    [[nodiscard]] ibv_wc_opcode opcode() const noexcept { return ibv_wc_read_opcode(cq_); }
    /// IBV_WC_* bits.
    [[nodiscard]] unsigned flags() const noexcept { return ibv_wc_read_wc_flags(cq_); }
    /// The device's own code of a failure. Only of a completion that failed.
    [[nodiscard]] std::uint32_t vendor_error() const noexcept {
        return ibv_wc_read_vendor_err(cq_);
    }

    /// Requires CompletionFields::byte_length.
    [[nodiscard]] std::uint32_t byte_length() const noexcept {
        assert(cq_->read_byte_len != nullptr && "byte_length is not in the fields of the queue");
        return ibv_wc_read_byte_len(cq_);
    }
    /// The immediate data in host byte order, where flags() has IBV_WC_WITH_IMM. Requires
    /// CompletionFields::immediate.
    [[nodiscard]] std::uint32_t immediate() const noexcept {
        assert(cq_->read_imm_data != nullptr && "immediate is not in the fields of the queue");
        return be32toh(ibv_wc_read_imm_data(cq_));
    }
    /// The rkey that the message invalidated, where flags() has IBV_WC_WITH_INV. Requires
    /// CompletionFields::immediate.
    [[nodiscard]] std::uint32_t invalidated_rkey() const noexcept {
        assert(cq_->read_imm_data != nullptr && "immediate is not in the fields of the queue");
        return ibv_wc_read_invalidated_rkey(cq_);
    }
    /// Also of a completion that failed. Requires CompletionFields::queue_pair.
    [[nodiscard]] std::uint32_t queue_pair() const noexcept {
        assert(cq_->read_qp_num != nullptr && "queue_pair is not in the fields of the queue");
        return ibv_wc_read_qp_num(cq_);
    }
    /// The number of the sender's queue pair (UD). Requires CompletionFields::source.
    [[nodiscard]] std::uint32_t source_queue_pair() const noexcept {
        assert(cq_->read_src_qp != nullptr && "source is not in the fields of the queue");
        return ibv_wc_read_src_qp(cq_);
    }
    /// The sender's LID (UD). Requires CompletionFields::source.
    [[nodiscard]] std::uint32_t source_lid() const noexcept {
        assert(cq_->read_slid != nullptr && "source is not in the fields of the queue");
        return ibv_wc_read_slid(cq_);
    }
    /// Requires CompletionFields::source.
    [[nodiscard]] std::uint8_t service_level() const noexcept {
        assert(cq_->read_sl != nullptr && "source is not in the fields of the queue");
        return ibv_wc_read_sl(cq_);
    }
    /// The clock of the device when the request completed, in ticks: see DeviceClock. Requires
    /// CompletionFields::timestamp.
    [[nodiscard]] std::uint64_t timestamp() const noexcept {
        assert(cq_->read_completion_ts != nullptr && "timestamp is not in the fields of the queue");
        return ibv_wc_read_completion_ts(cq_);
    }
    /// CLOCK_REALTIME when the request completed, which the provider computes from the clock of the
    /// device. Requires CompletionFields::wallclock.
    [[nodiscard]] WallclockTime wallclock() const noexcept {
        assert(cq_->read_completion_wallclock_ns != nullptr &&
               "wallclock is not in the fields of the queue");
        return WallclockTime(std::chrono::nanoseconds(
            static_cast<std::int64_t>(ibv_wc_read_completion_wallclock_ns(cq_))));
    }

    /// Copies the fields of an ibv_wc that the queue delivers and the completion has. The other
    /// members are 0.
    [[nodiscard]] WorkCompletion work_completion() const noexcept;

    /// For fields that verbs or a provider has and this class has not, such as
    /// ibv_wc_read_tm_info() and efadv_wc_read_sgid().
    [[nodiscard]] ibv_cq_ex* native() const noexcept { return cq_; }

  private:
    friend class ExtendedCompletionQueue;
    [[gnu::always_inline]] explicit CompletionBatch(ibv_cq_ex* cq) noexcept {
        ibv_poll_cq_attr attributes{};
        result_ = ibv_start_poll(cq, &attributes);
        // A batch that could not be started must not be ended.
        cq_ = result_ == 0 ? cq : nullptr;
    }

    ibv_cq_ex* cq_;
    /// The result of the last ibv_start_poll() or ibv_next_poll().
    int result_;
};

} // namespace rdmabuf
