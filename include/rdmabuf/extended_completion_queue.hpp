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

/// The fields of completions that an ExtendedCompletionQueue delivers, as a set of flags. wr_id,
/// status, opcode, flags and vendor error are always delivered. ibv_create_cq_ex(3).
enum class CompletionFields : std::uint32_t {
    none = 0,
    byte_length = IBV_WC_EX_WITH_BYTE_LEN,
    /// Immediate data and invalidated rkeys.
    immediate = IBV_WC_EX_WITH_IMM,
    queue_pair = IBV_WC_EX_WITH_QP_NUM,
    /// The sender of datagrams: queue pair, LID, service level and path bits.
    source = IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL |
             IBV_WC_EX_WITH_DLID_PATH_BITS,
    /// The fields of ibv_wc, which all providers with extended queues have.
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
/// Whether every field of @p fields is in @p set.
[[nodiscard]] constexpr bool has(CompletionFields set, CompletionFields fields) noexcept {
    return (static_cast<std::uint32_t>(set) & static_cast<std::uint32_t>(fields)) ==
           static_cast<std::uint32_t>(fields);
}

struct ExtendedCompletionQueueOptions {
    /// As in CompletionQueueOptions, like the three options below.
    unsigned depth = 256;
    const CompletionChannel* channel = nullptr;
    int vector = 0;
    void* cq_context = nullptr;

    CompletionFields fields = CompletionFields::standard;
    /// Gives its thread domain and its memory to the queue; nullptr for none.
    const ParentDomain* parent_domain = nullptr;
    /// Only one thread at a time polls the queue, so the provider needs no lock. The program
    /// guarantees it.
    bool single_threaded = false;
    /// The queue never overruns: new completions replace old ones. For programs that need only the
    /// newest, or that limit their requests by other means.
    bool ignore_overrun = false;
};

/// A completion queue whose completions have more fields, such as timestamps, and cost less to
/// read, because the program reads only the fields that it needs. It is a CompletionQueue with the
/// same rules, for queue pairs and for wait(); copies share it, also copies as CompletionQueue.
/// ibv_create_cq_ex(3).
class RDMABUF_EXPORT ExtendedCompletionQueue : public CompletionQueue {
  public:
    /// @throws Error EOPNOTSUPP where the provider has no extended queues, or not these fields or
    ///         options; EINVAL for a depth of 0, above the device's max_cqe, or a vector that it
    ///         does not have; ENOMEM; EBADF when @p context, the channel or the parent domain was
    ///         closed
    explicit ExtendedCompletionQueue(const Context& context,
                                     const ExtendedCompletionQueueOptions& options = {});

    /// Takes over a queue created elsewhere on @p context, by mlx5dv_create_cq(3) for example.
    /// @param channel  the channel with which the queue was created, which the queue then keeps
    ///                 alive. A channel that is not passed must outlive the queue.
    [[nodiscard]] static ExtendedCompletionQueue adopt(const Context& context, ibv_cq_ex* cq,
                                                       const CompletionChannel* channel = nullptr);
    /// Uses a queue that other code destroys, after every queue pair created with this object is
    /// destroyed.
    [[nodiscard]] static ExtendedCompletionQueue borrow(ibv_cq_ex* cq);

    /// Starts to read completions, the oldest first. At most one batch at a time in each thread.
    /// A call of the data path, as CompletionQueue::poll().
    [[nodiscard, gnu::always_inline]] CompletionBatch start_poll() const noexcept {
        assert(handle_ && "the CompletionQueue was closed, released or moved from");
        return CompletionBatch(native_ex());
    }

    /// The queue of native() as extended queue.
    [[nodiscard, gnu::always_inline]] ibv_cq_ex* native_ex() const noexcept {
        // The inverse of ibv_cq_ex_to_cq(), which is a cast.
        return reinterpret_cast<ibv_cq_ex*>(handle_.get());
    }

  private:
    explicit ExtendedCompletionQueue(Handle handle) noexcept : CompletionQueue(std::move(handle)) {}
};

/// The names of the fields joined by `|`, "none" for none, bits without a name in hexadecimal.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(CompletionFields fields);

} // namespace rdmabuf
