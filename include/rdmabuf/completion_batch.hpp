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

/// Iterates over the completions of an ExtendedCompletionQueue and reads their fields directly from
/// the completion entries of the device. ExtendedCompletionQueue::start_poll() starts a batch, and
/// the destructor ends it:
///
///     for (CompletionBatch batch = cq.start_poll(); batch; batch.next()) {
///         handle(batch.wr_id(), batch.status(), batch.timestamp());
///     }
///
/// The loop may end before all completions are read. The unread completions stay in the queue. See
/// ibv_create_cq_ex(3).
///
/// The provider may hold the lock of the completion queue while a batch exists. Use the batch in
/// one thread only, and neither poll nor destroy the queue while the batch exists.
///
/// The functions that read a field of the completion require that operator bool() returns true and
/// that the field is in ExtendedCompletionQueueOptions::fields. If one of these conditions is not
/// met, the behaviour is undefined; builds with assertions abort if the field is missing.
class RDMABUF_EXPORT CompletionBatch {
  public:
    CompletionBatch(const CompletionBatch&) = delete;
    CompletionBatch& operator=(const CompletionBatch&) = delete;
    [[gnu::always_inline]] ~CompletionBatch() {
        if (cq_ != nullptr) {
            ibv_end_poll(cq_);
        }
    }

    /// Returns whether the batch has a current completion. The functions below read the fields of
    /// the current completion.
    [[nodiscard, gnu::always_inline]] explicit operator bool() const noexcept {
        return result_ == 0;
    }
    /// Advances to the next completion. Requires that operator bool() returns true.
    [[gnu::always_inline]] void next() noexcept { result_ = ibv_next_poll(cq_); }
    /// Returns success if the batch has a current completion or if the queue is empty. If the queue
    /// overran or the device failed, returns the errno value of ibv_start_poll() or
    /// ibv_next_poll(). After such an error the queue cannot be used any more.
    [[nodiscard]] Status error() const noexcept {
        if (result_ == 0 || result_ == ENOENT) {
            return {};
        }
        return Status(result_ > 0 ? result_ : EIO);
    }

    [[nodiscard]] std::uint64_t wr_id() const noexcept { return cq_->wr_id; }
    [[nodiscard]] ibv_wc_status status() const noexcept { return cq_->status; }
    [[nodiscard]] bool succeeded() const noexcept { return cq_->status == IBV_WC_SUCCESS; }
    /// Returns the opcode of the completion. This function and the functions below return a valid
    /// value only if succeeded() returns true, unless the comment of a function states another
    /// condition.
    [[nodiscard]] ibv_wc_opcode opcode() const noexcept { return ibv_wc_read_opcode(cq_); }
    /// Returns the flags of the completion, a combination of IBV_WC_* bits.
    [[nodiscard]] unsigned flags() const noexcept { return ibv_wc_read_wc_flags(cq_); }
    /// Returns the vendor-specific error code. The result is valid only if succeeded() returns
    /// false.
    [[nodiscard]] std::uint32_t vendor_error() const noexcept {
        return ibv_wc_read_vendor_err(cq_);
    }

    /// Returns the number of bytes that the request transferred. Requires
    /// CompletionFields::byte_length.
    [[nodiscard]] std::uint32_t byte_length() const noexcept {
        assert(cq_->read_byte_len != nullptr && "byte_length is not in the fields of the queue");
        return ibv_wc_read_byte_len(cq_);
    }
    /// Returns the immediate data in host byte order. The result is valid only if flags() contains
    /// IBV_WC_WITH_IMM. Requires CompletionFields::immediate.
    [[nodiscard]] std::uint32_t immediate() const noexcept {
        assert(cq_->read_imm_data != nullptr && "immediate is not in the fields of the queue");
        return be32toh(ibv_wc_read_imm_data(cq_));
    }
    /// Returns the rkey that the received message invalidated. The result is valid only if flags()
    /// contains IBV_WC_WITH_INV. Requires CompletionFields::immediate.
    [[nodiscard]] std::uint32_t invalidated_rkey() const noexcept {
        assert(cq_->read_imm_data != nullptr && "immediate is not in the fields of the queue");
        return ibv_wc_read_invalidated_rkey(cq_);
    }
    /// Returns the number of the local queue pair. The result is valid also if succeeded() returns
    /// false. Requires CompletionFields::queue_pair.
    [[nodiscard]] std::uint32_t queue_pair() const noexcept {
        assert(cq_->read_qp_num != nullptr && "queue_pair is not in the fields of the queue");
        return ibv_wc_read_qp_num(cq_);
    }
    /// Returns the number of the queue pair that sent a received UD message. Requires
    /// CompletionFields::source.
    [[nodiscard]] std::uint32_t source_queue_pair() const noexcept {
        assert(cq_->read_src_qp != nullptr && "source is not in the fields of the queue");
        return ibv_wc_read_src_qp(cq_);
    }
    /// Returns the LID of the port that sent a received UD message. Requires
    /// CompletionFields::source.
    [[nodiscard]] std::uint32_t source_lid() const noexcept {
        assert(cq_->read_slid != nullptr && "source is not in the fields of the queue");
        return ibv_wc_read_slid(cq_);
    }
    /// Returns the service level of a received UD message. Requires CompletionFields::source.
    [[nodiscard]] std::uint8_t service_level() const noexcept {
        assert(cq_->read_sl != nullptr && "source is not in the fields of the queue");
        return ibv_wc_read_sl(cq_);
    }
    /// Returns the time of the completion in ticks of the device's clock. DeviceClock converts the
    /// ticks to wall-clock time. Requires CompletionFields::timestamp.
    [[nodiscard]] std::uint64_t timestamp() const noexcept {
        assert(cq_->read_completion_ts != nullptr && "timestamp is not in the fields of the queue");
        return ibv_wc_read_completion_ts(cq_);
    }
    /// Returns the time of the completion by CLOCK_REALTIME, which the provider computes from the
    /// clock of the device. Requires CompletionFields::wallclock.
    [[nodiscard]] WallclockTime wallclock() const noexcept {
        assert(cq_->read_completion_wallclock_ns != nullptr &&
               "wallclock is not in the fields of the queue");
        return WallclockTime(std::chrono::nanoseconds(
            static_cast<std::int64_t>(ibv_wc_read_completion_wallclock_ns(cq_))));
    }

    /// Copies the current completion into an ibv_wc. A member of the result is 0 if its field is
    /// not in ExtendedCompletionQueueOptions::fields or is not valid for this completion.
    [[nodiscard]] WorkCompletion work_completion() const noexcept;

    /// Returns the queue of the batch, or nullptr if start_poll() found no completion. With the
    /// queue, programs can read fields for which this class has no function, for example with
    /// ibv_wc_read_tm_info() or efadv_wc_read_sgid().
    [[nodiscard]] ibv_cq_ex* native() const noexcept { return cq_; }

  private:
    friend class ExtendedCompletionQueue;
    [[gnu::always_inline]] explicit CompletionBatch(ibv_cq_ex* cq) noexcept {
        ibv_poll_cq_attr attributes{};
        result_ = ibv_start_poll(cq, &attributes);
        // If ibv_start_poll() failed, ibv_end_poll() must not be called. Therefore the destructor
        // does not call ibv_end_poll() if cq_ is null.
        cq_ = result_ == 0 ? cq : nullptr;
    }

    ibv_cq_ex* cq_;
    /// The result of the last call of ibv_start_poll() or ibv_next_poll(): 0 for a completion,
    /// ENOENT if the queue is empty, or another errno value.
    int result_;
};

} // namespace rdmabuf
