// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/gid.hpp>
#include <rdmabuf/work_completion.hpp>

namespace rdmabuf {

namespace detail::efadv {
struct Cq;
}

/// WorkCompletion::slid of a message whose sender has no AddressHandle in the protection domain of
/// the receiving SRD queue pair. Otherwise slid is the AddressHandle::number() of the sender's
/// port.
inline constexpr std::uint16_t unknown_address = 0xffff;

/// A completion queue of EFA that also reports the GIDs of unknown senders, so that a receiver can
/// reply without an exchange of addresses:
///
///     const SrdCompletionQueue cq(context);
///     // Pass cq.queue() as QueuePairOptions::recv_cq.
///     Gid sender;
///     if (cq.poll(completion, sender) == 1 && completion.slid == unknown_address) {
///         const QueuePairAddress peer{.type = QueuePairType::scalable_reliable_datagram,
///                                     .number = completion.src_qp, .qkey = qkey, .gid = sender};
///         const AddressHandle reply(pd, peer, {});
///     }
///
/// Copies share the queue. efadv_create_cq(3).
class RDMABUF_EXPORT SrdCompletionQueue {
  public:
    /// @throws Error EOPNOTSUPP if the device is not an EFA device, if it does not report GIDs
    ///         (SrdAttributes::sender_gid), or if libefa is older than rdma-core 43; otherwise what
    ///         CompletionQueue's constructor throws
    explicit SrdCompletionQueue(const Context& context, const CompletionQueueOptions& options = {});

    /// The completion queue, for QueuePairOptions. Its own poll() and wait() return the same
    /// completions, without GIDs.
    [[nodiscard]] const CompletionQueue& queue() const noexcept { return queue_; }

    /// Takes one completion, as CompletionQueue::poll() does. As with that function, the queue must
    /// not be closed or moved from.
    /// @param sender  the GID of the sender if the completion is that of a receive and its slid is
    ///                unknown_address; otherwise all zero
    /// @return 1, 0 or negative
    [[nodiscard]] int poll(WorkCompletion& completion, Gid& sender) const noexcept;

  private:
    CompletionQueue queue_;
    detail::efadv::Cq* efa_; // a part of the queue
};

} // namespace rdmabuf
