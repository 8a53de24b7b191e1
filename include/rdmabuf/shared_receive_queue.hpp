// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>
#include <memory>
#include <span>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/status.hpp>
#include <rdmabuf/work_list.hpp>
#include <rdmabuf/work_request.hpp>
#include <rdmabuf/xrc_domain.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT DestroySrq {
    static constexpr const char* name = "ibv_destroy_srq";
    static int call(ibv_srq* srq) noexcept;
};
/// The second parent keeps the XRC domain and the completion queue of an XRC queue alive; otherwise
/// it is null.
using SharedReceiveQueueHandle =
    shared_handle<ibv_srq, DestroySrq, ProtectionDomain, std::shared_ptr<const void>>;
} // namespace detail

struct SharedReceiveQueueOptions {
    std::uint32_t max_wr = 256;
    std::uint32_t max_sge = 1;
    /// When fewer receives than this are posted, the device raises IBV_EVENT_SRQ_LIMIT_REACHED,
    /// once. SharedReceiveQueue::arm_limit() sets it again. 0 for no event.
    std::uint32_t limit = 0;
    /// Makes the queue one of this XRC domain; nullptr for the queue pairs of this process. Each of
    /// the two members below needs the other one.
    const XrcDomain* xrc_domain = nullptr;
    /// The completion queue of the receives of an XRC queue.
    const CompletionQueue* xrc_cq = nullptr;
};

/// Receives that several queue pairs draw from. Queue pairs made with it keep it alive.
/// ibv_create_srq(3).
class RDMABUF_EXPORT SharedReceiveQueue {
  public:
    /// @throws Error EINVAL above the device's max_srq_wr or max_srq_sge, EOPNOTSUPP where the
    /// device
    ///         has none.
    explicit SharedReceiveQueue(const ProtectionDomain& pd,
                                const SharedReceiveQueueOptions& options = {});
    SharedReceiveQueue(SharedReceiveQueue&&) noexcept = default;
    SharedReceiveQueue& operator=(SharedReceiveQueue&&) noexcept = default;
    SharedReceiveQueue(const SharedReceiveQueue&) = delete;
    SharedReceiveQueue& operator=(const SharedReceiveQueue&) = delete;
    ~SharedReceiveQueue() = default;

    /// Posts one receive. Must not be called after close(), release() or a move (an assertion).
    /// @return ENOMEM when the queue is full, EINVAL for a bad entry.
    [[gnu::always_inline]] Status post_recv(std::span<const ibv_sge> local,
                                            std::uint64_t wr_id = 0) const noexcept {
        assert(handle_ && "the SharedReceiveQueue was closed, released or moved from");
        ibv_recv_wr request = make_recv(local, wr_id);
        ibv_recv_wr* failed; // NOLINT(*-init-variables): verbs sets it, or nobody reads it
        return Status(ibv_post_srq_recv(handle_.get(), &request, &failed));
    }
    [[gnu::always_inline]] Status post_recv(const ibv_sge& local,
                                            std::uint64_t wr_id = 0) const noexcept {
        return post_recv(std::span(&local, 1), wr_id);
    }
    /// Posts a list. On failure, the requests before @p failed are posted, and the others are not.
    /// @return as post_recv(), and E2BIG when more requests were added than the list has room for.
    ///         Nothing is posted then.
    template <std::size_t Capacity>
    [[gnu::always_inline]] Status post(RecvList<Capacity>& list,
                                       ibv_recv_wr*& failed) const noexcept {
        assert(handle_ && "the SharedReceiveQueue was closed, released or moved from");
        return list.post(
            [this](ibv_recv_wr* first, ibv_recv_wr** stopped) {
                return ibv_post_srq_recv(handle_.get(), first, stopped);
            },
            failed);
    }

    /// The number of the queue, for QueuePair::post_to_srq() of peers. ibv_get_srq_num(3).
    /// @throws Error EOPNOTSUPP where only XRC queues have a number; EBADF when this was closed.
    [[nodiscard]] std::uint32_t number() const;

    /// Sets the limit again. The device clears it when it raises IBV_EVENT_SRQ_LIMIT_REACHED, which
    /// Context::wait_async_event() returns with native() as `object`. If fewer receives than @p
    /// limit are posted already, the event comes at once or with the next receive, depending on the
    /// device. ibv_modify_srq(3).
    /// @param limit  0 for no event
    /// @throws Error EINVAL above the size of the queue; EBADF when this was closed.
    void arm_limit(std::uint32_t limit);
    /// The size of the queue, and the limit, which is 0 after its event. ibv_query_srq(3).
    /// @throws Error EBADF when this was closed.
    [[nodiscard]] ibv_srq_attr attributes() const;

    [[nodiscard]] ibv_srq* native() const noexcept { return handle_.get(); }
    /// The caller destroys it from now on.
    [[nodiscard]] ibv_srq* release() noexcept { return handle_.release(); }
    /// @throws Error EBUSY while queue pairs use it.
    void close() { handle_.close(); }

  private:
    friend class PreparedQueuePair;
    detail::SharedReceiveQueueHandle handle_;
};

} // namespace rdmabuf
