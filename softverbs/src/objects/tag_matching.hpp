// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "objects/queue_pair.hpp"

// Shared receive queues of type IBV_SRQT_TM; see ibv_post_srq_ops(3). The program adds buffers with
// a tag. A message that starts with the tag matching header (ibv_tmh) and whose tag matches goes to
// such a buffer, without the header. Every other message goes to an ordinary receive request.

namespace softverbs {

/// Limits of tag matching that ibv_query_device_ex() reports.
inline constexpr std::uint32_t max_rendezvous_header = 64;
inline constexpr std::uint32_t max_tags = 127;
inline constexpr std::uint32_t max_tag_operations = 16384;
inline constexpr std::uint32_t max_tag_sge = 1;

/// Send requests that a queue pair with such a shared receive queue has in addition to the
/// program's own: the RDMA read and the FIN message of each rendezvous.
inline constexpr std::uint32_t rendezvous_requests = 64;
/// Marks a send request of a rendezvous in SendRequest::flags. The program cannot set it.
inline constexpr unsigned rendezvous_flag = 1U << 31U;

/// The tagged buffers of a shared receive queue.
struct TagList {
    struct Entry {
        std::uint32_t handle = 0;
        std::uint64_t tag = 0;
        std::uint64_t mask = 0;
        /// False if the buffer was added while the program had not handled all unexpected messages.
        /// The buffer then matches no message until the program has reported that it has handled
        /// all of them.
        bool enabled = true;
        RecvRequest request;
    };
    /// The buffers, in the order in which they were added and are matched. The capacity is reserved
    /// when the queue is created.
    std::vector<Entry> entries;
    std::uint32_t max_entries = 0;
    std::uint32_t max_operations = 0;
    /// Number of list operations whose completion was not polled.
    std::uint32_t operations = 0;
    std::uint32_t next_handle = 0;
    /// Number of unexpected messages that have arrived.
    std::uint32_t unexpected = 0;
    /// Number of unexpected messages that the program has handled.
    std::uint32_t handled = 0;
};

/// Checks the attributes of a shared receive queue of type IBV_SRQT_TM. Returns 0 or EINVAL.
[[nodiscard]] int check_tag_matching(const Context& context,
                                     const ibv_srq_init_attr_ex& attributes);
/// Creates the empty list of tagged buffers of a new queue. Throws std::bad_alloc.
void make_tag_list(Srq& srq, const ibv_srq_init_attr_ex& attributes);
/// Call this before the queue is destroyed. Completions that were not polled stay in the completion
/// queue, but no longer refer to the queue.
void forget_operations(Srq& srq) noexcept;

[[nodiscard]] inline bool has_tags(const Qp& qp) noexcept {
    return qp.shared_queue != nullptr && qp.shared_queue->tags != nullptr;
}

/// Returns whether the tag matches an enabled buffer.
[[nodiscard]] bool has_match(const TagList& list, std::uint64_t tag) noexcept;
/// Removes the first enabled buffer that matches the tag, and returns its receive request. Call it
/// only if has_match() has returned true.
[[nodiscard]] RecvRequest match_tag(TagList& list, std::uint64_t tag);

/// Increases the capacities of a queue pair by the number of requests and entries that rendezvous
/// messages need.
void add_rendezvous_capacity(ibv_qp_cap& cap) noexcept;
/// Allocates the send queue if necessary, and returns whether the queue pair can start a rendezvous
/// now.
[[nodiscard]] bool can_start_rendezvous(Qp& qp) noexcept;
/// Posts an RDMA read of the data that @p header describes into the buffer @p to, and then a FIN
/// message with the tag and the user data of @p message. Call it only if can_start_rendezvous() has
/// returned true.
void start_rendezvous(Qp& qp, const RecvRequest& to, const ibv_tmh& message, const ibv_rvh& header);
/// Removes the oldest send request, which must belong to a rendezvous. When the data has arrived,
/// or when the read has failed or was flushed, pushes the completion of the tagged buffer.
void complete_rendezvous(Qp& qp, ibv_wc_status status);

/// Implements ibv_post_srq_ops(). Locks Process::lock itself.
int post_srq_ops(ibv_srq* native, ibv_ops_wr* operation, ibv_ops_wr** bad);

} // namespace softverbs
