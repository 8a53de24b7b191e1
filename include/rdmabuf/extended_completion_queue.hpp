// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>
#include <string>
#include <utility>

#include <rdmabuf/completion_batch.hpp>
#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/parent_domain.hpp>

namespace rdmabuf {

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

    /// Starts a batch with which the program reads completions, the oldest first. A thread may have
    /// only one batch at a time. This function belongs to the data path: its behaviour is undefined
    /// after close(), release() or a move.
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
