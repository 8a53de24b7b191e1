// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/device_clock.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/parent_domain.hpp>

namespace rdmabuf {

/// Iterates over the completions of an ExtendedCompletionQueue and reads their fields directly from
/// the completion entries of the device. ExtendedCompletionQueue::start_poll() starts a batch, and
/// the destructor of the CompletionBatch ends the batch:
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
/// The functions that read the completion require that operator bool() returns true. Those whose
/// comment names a field of CompletionFields also require that this field is in
/// ExtendedCompletionQueueOptions::fields. If one of these conditions is not met, the behaviour is
/// undefined; builds with assertions abort if the field is missing.
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

    /// Returns the queue of the batch, or nullptr if start_poll() failed or found no completion.
    /// With the queue, programs can read fields for which this class has no function, for example
    /// with ibv_wc_read_tm_info() or efadv_wc_read_sgid().
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

/// The fields that can be read from the completions of an ExtendedCompletionQueue; combine fields
/// with `|`. wr_id, status, opcode, flags and vendor error can always be read. See
/// ibv_create_cq_ex(3).
enum class CompletionFields : std::uint32_t {
    none = 0,
    byte_length = IBV_WC_EX_WITH_BYTE_LEN,
    /// The immediate data or the invalidated rkey of a received message.
    immediate = IBV_WC_EX_WITH_IMM,
    queue_pair = IBV_WC_EX_WITH_QP_NUM,
    /// The sender's queue pair number, the sender's LID, the service level and the DLID path bits
    /// of a received datagram.
    source = IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL |
             IBV_WC_EX_WITH_DLID_PATH_BITS,
    /// The fields that struct ibv_wc also has. All providers with extended completion queues
    /// support these fields.
    standard = byte_length | immediate | queue_pair | source,
    /// The time of the completion in ticks of the device's clock.
    timestamp = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
    /// The time of the completion by CLOCK_REALTIME.
    wallclock = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    cvlan = IBV_WC_EX_WITH_CVLAN,
    flow_tag = IBV_WC_EX_WITH_FLOW_TAG,
    tag_matching = IBV_WC_EX_WITH_TM_INFO,
};

[[nodiscard]] constexpr CompletionFields operator|(CompletionFields a,
                                                   CompletionFields b) noexcept {
    return static_cast<CompletionFields>(static_cast<std::uint32_t>(a) |
                                         static_cast<std::uint32_t>(b));
}
/// Returns whether @p set contains every field of @p fields.
[[nodiscard]] constexpr bool has(CompletionFields set, CompletionFields fields) noexcept {
    return (static_cast<std::uint32_t>(set) & static_cast<std::uint32_t>(fields)) ==
           static_cast<std::uint32_t>(fields);
}

struct ExtendedCompletionQueueOptions {
    /// The number of completions that the queue can hold; the device may round up this number.
    unsigned depth = 256;
    /// The channel that receives the events of the queue; nullptr for a queue that is only polled.
    const CompletionChannel* channel = nullptr;
    /// The completion vector, from 0 to ibv_context::num_comp_vectors - 1. The vector selects the
    /// interrupt with which the device reports the events of the queue.
    int vector = 0;
    /// A pointer of the program, for example to its connection object. The pointer is stored in
    /// ibv_cq::cq_context.
    void* cq_context = nullptr;

    CompletionFields fields = CompletionFields::standard;
    /// The parent domain whose thread domain and allocator the queue uses; nullptr for a queue
    /// without a parent domain.
    const ParentDomain* parent_domain = nullptr;
    /// If true, the program guarantees that only one thread at a time polls the queue, so that the
    /// provider needs no lock.
    bool single_threaded = false;
    /// If true, the device does not check for overruns: new completions overwrite old completions
    /// that were not polled. Programs can set this if they need only the newest completions, or if
    /// they limit the number of outstanding requests themselves.
    bool ignore_overrun = false;
};

/// A completion queue whose completions can have more fields than ibv_wc, for example timestamps.
/// Polling is cheaper than ibv_poll_cq(), because the program reads only the fields that it needs.
/// Functions that take a CompletionQueue also accept an ExtendedCompletionQueue. Copies share the
/// queue. See ibv_create_cq_ex(3).
class RDMABUF_EXPORT ExtendedCompletionQueue : public CompletionQueue {
  public:
    /// Creates an extended completion queue.
    /// @throws Error
    ///   - EOPNOTSUPP: the provider does not support extended queues, or does not support one of
    ///     the requested fields or options
    ///   - EINVAL: a depth of 0 or above the device's max_cqe, or a completion vector that the
    ///     device does not have
    ///   - EBADF: @p context, the channel or the parent domain was closed, released or moved from
    ///   - ENOMEM: there is not enough memory for the queue
    explicit ExtendedCompletionQueue(const Context& context,
                                     const ExtendedCompletionQueueOptions& options = {});

    /// Takes ownership of a queue that other code has created on @p context, for example with
    /// mlx5dv_create_cq(3).
    /// @param channel  the channel of @p cq, which the returned object keeps alive. If @p cq has a
    ///                 channel but @p channel is null, the program must destroy the queue before
    ///                 the channel.
    [[nodiscard]] static ExtendedCompletionQueue adopt(const Context& context, ibv_cq_ex* cq,
                                                       const CompletionChannel* channel = nullptr);
    /// Returns an object that uses @p cq but does not own it. Other code must destroy @p cq, after
    /// all queue pairs created with the returned object are destroyed.
    [[nodiscard]] static ExtendedCompletionQueue borrow(ibv_cq_ex* cq);

    /// Starts a batch with which the program reads completions, the oldest first. A thread must not
    /// start another batch of the same queue before this batch has ended. This function belongs to
    /// the data path: its behaviour is undefined after close(), release() or a move.
    [[nodiscard, gnu::always_inline]] CompletionBatch start_poll() const noexcept {
        assert(handle_ && "the CompletionQueue was closed, released or moved from");
        return CompletionBatch(native_ex());
    }

    /// Returns the queue as ibv_cq_ex. This object still owns the queue.
    [[nodiscard, gnu::always_inline]] ibv_cq_ex* native_ex() const noexcept {
        // ibv_cq_ex_to_cq() is a cast from ibv_cq_ex to ibv_cq. libibverbs has no function for the
        // opposite direction, so this function casts the pointer.
        return reinterpret_cast<ibv_cq_ex*>(handle_.get());
    }

  private:
    explicit ExtendedCompletionQueue(Handle handle) noexcept : CompletionQueue(std::move(handle)) {}
};

/// Returns the names of the fields joined by `|`, or "none". All bits without a name are appended
/// together as one hexadecimal number.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(CompletionFields fields);

} // namespace rdmabuf
