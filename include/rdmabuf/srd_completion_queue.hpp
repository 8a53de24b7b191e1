// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/extended_completion_queue.hpp>

namespace rdmabuf {

namespace detail::efadv {
struct Cq;
}

/// The value of WorkCompletion::slid for a message whose sender has no AddressHandle in the
/// protection domain of the receiving SRD queue pair. For other messages, slid is the
/// AddressHandle::number() of the sender.
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
    /// Creates a completion queue.
    /// @throws Error EOPNOTSUPP if the device is not an EFA device, if the device cannot report the
    ///         GID of the sender in a completion (SrdAttributes::sender_gid), or if libefa is older
    ///         than rdma-core 43. The other errors are those of the constructor of CompletionQueue.
    explicit SrdCompletionQueue(const Context& context, const CompletionQueueOptions& options = {});

    /// Returns the completion queue, for QueuePairOptions. CompletionQueue::poll() and wait()
    /// return the same completions as this object, but without GIDs.
    [[nodiscard]] const CompletionQueue& queue() const noexcept { return queue_; }

    /// Polls one completion, as CompletionQueue::poll() does. The queue must not have been closed
    /// or moved from.
    /// @param sender  set to the GID of the sender for a receive completion whose slid is
    ///                unknown_address (no address handle exists for the sender); set to the zero
    ///                GID for all other completions
    /// @return 1 for a completion, 0 if the queue is empty, or a negative errno value
    [[nodiscard]] int poll(WorkCompletion& completion, Gid& sender) const noexcept;

  private:
    ExtendedCompletionQueue queue_;
    detail::efadv::Cq* efa_; // not owned: a part of queue_
};

} // namespace rdmabuf
