// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/work_request.hpp>
#include <rdmabuf/xrc_domain.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT DestroySrq {
    static constexpr const char* name = "ibv_destroy_srq";
    static int call(ibv_srq* srq) noexcept;
};
/// A handle of an ibv_srq. Its std::shared_ptr keeps the XRC domain and the completion queue of
/// SharedReceiveQueueOptions alive, and is null if the options contain neither.
using SharedReceiveQueueHandle =
    shared_handle<ibv_srq, DestroySrq, ProtectionDomain, std::shared_ptr<const void>>;
} // namespace detail

struct SharedReceiveQueueOptions {
    /// The maximum number of posted receives. The device may create a larger queue.
    std::uint32_t max_wr = 256;
    /// The maximum number of scatter-gather entries of a receive.
    std::uint32_t max_sge = 1;
    /// If the number of receives in the queue falls below this limit, the device raises
    /// IBV_EVENT_SRQ_LIMIT_REACHED once. SharedReceiveQueue::arm_limit() sets the limit again. With
    /// the limit 0, the device raises no event.
    std::uint32_t limit = 0;
    /// The XRC domain of an XRC shared receive queue; nullptr for other queues.
    const XrcDomain* xrc_domain = nullptr;
    /// The maximum number of tagged receives (make_tag_add()) of a queue with tag matching, at most
    /// DeviceAttributes::native.tm_caps.max_num_tags; 0 for a queue without tag matching.
    std::uint32_t max_tags = 0;
    /// The maximum number of outstanding tag operations, at most
    /// DeviceAttributes::native.tm_caps.max_ops; 0 for a queue without tag matching.
    std::uint32_t max_tag_operations = 0;
    /// The completion queue for the receives of a queue with an XRC domain or with tag matching,
    /// and for tag operations; nullptr for other queues. A program reads the tag of a message from
    /// an ExtendedCompletionQueue with CompletionFields::tag_matching.
    const CompletionQueue* cq = nullptr;
};

/// Makes the operation that adds a tagged receive. The device delivers a message with an ibv_tmh
/// header (infiniband/tm_types.h) to the oldest tagged receive for which (tag of the header & mask)
/// is equal to @p tag. An unexpected message, which no tagged receive matches, consumes a receive
/// of SharedReceiveQueue::post_recv(). Both completions have the opcode IBV_WC_TM_RECV; the flag
/// IBV_WC_TM_MATCH tells them apart. A message that arrives by rendezvous completes its tagged
/// receive twice: first with IBV_WC_TM_MATCH, then with only IBV_WC_TM_DATA_VALID. A tagged receive
/// contains only the data; a receive of an unexpected message begins with the ibv_tmh, and its
/// completion has no tag. See ibv_post_srq_ops(3).
/// @param local       at most one entry: tm_caps.max_sge of current devices is 1, and libmlx5
///                    ignores further entries without an error
/// @param recv_wr_id  the wr_id of the completion of the receive
/// @param wr_id       the wr_id of the completion of this operation (IBV_WC_TM_ADD)
/// @param unexpected  if set, the operation also synchronizes as make_tag_sync() does. libmlx5
///                    clears IBV_WC_TM_SYNC_REQ in the completions of later operations only after
///                    this.
[[nodiscard]] inline ibv_ops_wr make_tag_add(
    std::span<const ibv_sge> local, std::uint64_t tag, std::uint64_t mask, std::uint64_t recv_wr_id,
    std::uint64_t wr_id = 0, std::optional<std::uint32_t> unexpected = {}) noexcept {
    ibv_ops_wr operation{};
    operation.wr_id = wr_id;
    operation.opcode = IBV_WR_TAG_ADD;
    operation.flags = IBV_OPS_SIGNALED | (unexpected ? int{IBV_OPS_TM_SYNC} : 0);
    operation.tm.unexpected_cnt = unexpected.value_or(0);
    operation.tm.add = {.recv_wr_id = recv_wr_id,
                        .sg_list = const_cast<ibv_sge*>(local.data()),
                        .num_sge = static_cast<int>(local.size()),
                        .tag = tag,
                        .mask = mask};
    return operation;
}
/// Makes the operation that removes a tagged receive. The completion has the opcode IBV_WC_TM_DEL,
/// and the status IBV_WC_TM_ERR if a message has consumed the receive at the same time. The program
/// must not remove a receive whose completion it has polled, or that was already removed: libmlx5
/// does not check the handle, and its list of handles is corrupted.
/// @param handle  ibv_ops_wr::tm.handle of the operation that added the receive, after post()
[[nodiscard]] inline ibv_ops_wr make_tag_remove(std::uint32_t handle,
                                                std::uint64_t wr_id = 0) noexcept {
    ibv_ops_wr operation{};
    operation.wr_id = wr_id;
    operation.opcode = IBV_WR_TAG_DEL;
    operation.flags = IBV_OPS_SIGNALED;
    operation.tm.handle = handle;
    return operation;
}
/// Makes the operation that reports to the device how many unexpected messages the program has
/// processed. The flag IBV_WC_TM_SYNC_REQ of a completion requests this operation: until the device
/// has the current number, it does not match new tagged receives. The completion has the opcode
/// IBV_WC_TM_SYNC.
/// @param unexpected  the number of unexpected messages processed since the queue was created
[[nodiscard]] inline ibv_ops_wr make_tag_sync(std::uint32_t unexpected,
                                              std::uint64_t wr_id = 0) noexcept {
    ibv_ops_wr operation{};
    operation.wr_id = wr_id;
    operation.opcode = IBV_WR_TAG_SYNC;
    operation.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
    operation.tm.unexpected_cnt = unexpected;
    return operation;
}

/// A shared receive queue, from which several queue pairs consume receives. The queue pairs that
/// use the shared receive queue keep it alive. A SharedReceiveQueue can be moved but not copied.
/// See ibv_create_srq(3).
class RDMABUF_EXPORT SharedReceiveQueue {
  public:
    /// Creates a shared receive queue.
    /// @throws Error EINVAL if max_wr, max_sge, max_tags or max_tag_operations is above the
    ///         device's limit, if cq is missing or not needed, or if an XRC queue has tags;
    ///         EOPNOTSUPP if the device has no shared receive queues of this kind; EBADF if @p pd
    ///         or an object in @p options was closed, released or moved from
    explicit SharedReceiveQueue(const ProtectionDomain& pd,
                                const SharedReceiveQueueOptions& options = {});
    /// Takes ownership of @p srq, which other code has created with @p pd. The program must keep
    /// the XRC domain and the completion queue of @p srq, if it has them, until @p srq is
    /// destroyed.
    [[nodiscard]] static SharedReceiveQueue adopt(const ProtectionDomain& pd, ibv_srq* srq);
    /// Returns an object that uses @p srq without owning it. The owner must destroy @p srq after
    /// this object and all queue pairs that were created with it. For a null pointer, the result is
    /// like an object that was closed.
    [[nodiscard]] static SharedReceiveQueue borrow(ibv_srq* srq);
    SharedReceiveQueue(SharedReceiveQueue&&) noexcept = default;
    SharedReceiveQueue& operator=(SharedReceiveQueue&&) noexcept = default;
    SharedReceiveQueue(const SharedReceiveQueue&) = delete;
    SharedReceiveQueue& operator=(const SharedReceiveQueue&) = delete;
    ~SharedReceiveQueue() = default;

    /// Posts one receive. Do not call this function after close(), release() or a move (an
    /// assertion checks this).
    /// @return the errno value of ibv_post_srq_recv(3): ENOMEM if the queue is full, EINVAL for an
    ///         invalid scatter-gather entry
    [[gnu::always_inline]] CallStatus post_recv(std::span<const ibv_sge> local,
                                                std::uint64_t wr_id = 0) const noexcept {
        assert(handle_ && "the SharedReceiveQueue was closed, released or moved from");
        ibv_recv_wr request = make_recv(local, wr_id);
        ibv_recv_wr* failed; // NOLINT(*-init-variables): set by verbs on failure
        return {Status(ibv_post_srq_recv(handle_.get(), &request, &failed)), "ibv_post_srq_recv"};
    }
    [[gnu::always_inline]] CallStatus post_recv(const ibv_sge& local,
                                                std::uint64_t wr_id = 0) const noexcept {
        return post_recv(std::span(&local, 1), wr_id);
    }
    /// Posts the receives of a list with one C call. If posting one receive fails, the receives
    /// before @p failed are posted, and @p failed and the later receives are not posted.
    /// @return the errno values of post_recv(), or E2BIG if more receives were added than the list
    ///         has room for. After E2BIG, no receive is posted.
    template <std::size_t Capacity>
    [[gnu::always_inline]] CallStatus post(RecvList<Capacity>& list,
                                           ibv_recv_wr*& failed) const noexcept {
        assert(handle_ && "the SharedReceiveQueue was closed, released or moved from");
        const Status status = list.post(
            [this](ibv_recv_wr* first, ibv_recv_wr** stopped) {
                return ibv_post_srq_recv(handle_.get(), first, stopped);
            },
            failed);
        return {status, "ibv_post_srq_recv"};
    }

    /// Posts one operation of a queue with tag matching. For make_tag_add(), sets
    /// operation.tm.handle to the handle of the tagged receive.
    /// @return the errno value of ibv_post_srq_ops(3): ENOMEM if max_tags or max_tag_operations is
    ///         reached, EINVAL or EOPNOTSUPP for a queue or a device without tag matching
    CallStatus post(ibv_ops_wr& operation) const noexcept {
        assert(handle_ && "the SharedReceiveQueue was closed, released or moved from");
        ibv_ops_wr* failed; // NOLINT(*-init-variables): set by verbs on failure
        return {Status(ibv_post_srq_ops(handle_.get(), &operation, &failed)), "ibv_post_srq_ops"};
    }

    /// Returns the number of the queue, which a peer passes to QueuePair::post_to_srq(). See
    /// ibv_get_srq_num(3).
    /// @throws Error EOPNOTSUPP if this is not an XRC queue, and the device gives numbers to XRC
    ///         queues only; EBADF if this object was closed, released or moved from
    [[nodiscard]] std::uint32_t number() const;

    /// Sets the limit again. The device clears the limit when it raises
    /// IBV_EVENT_SRQ_LIMIT_REACHED. Context::wait_async_event() returns this event with native() as
    /// `object`. If fewer receives than @p limit are already posted, the event is raised
    /// immediately or with the next receive, depending on the device. ibv_modify_srq(3).
    /// @param limit  the number of receives; 0 for no event
    /// @throws Error EINVAL if @p limit is above the size of the queue; EBADF if this object was
    ///         closed, released or moved from
    void arm_limit(std::uint32_t limit);
    /// Queries the size of the queue and the limit. After IBV_EVENT_SRQ_LIMIT_REACHED was raised,
    /// the limit is 0. See ibv_query_srq(3).
    /// @throws Error EBADF if this object was closed, released or moved from
    [[nodiscard]] ibv_srq_attr attributes() const;

    [[nodiscard]] ibv_srq* native() const noexcept { return handle_.get(); }
    /// Returns the ibv_srq and gives up ownership: the caller must destroy the ibv_srq. If it was
    /// borrowed, only its owner may destroy it.
    [[nodiscard]] ibv_srq* release() noexcept { return handle_.release(); }
    /// Destroys the shared receive queue now. After an error, this object still owns the queue.
    /// @throws Error EBUSY while queue pairs use the shared receive queue
    void close() { handle_.close(); }

  private:
    friend class PreparedQueuePair;
    explicit SharedReceiveQueue(detail::SharedReceiveQueueHandle handle) noexcept
        : handle_(std::move(handle)) {}

    detail::SharedReceiveQueueHandle handle_;
};

} // namespace rdmabuf
