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

/// Limits of the device, which ibv_query_device_ex() reports.
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
        /// False: the buffer was added while the program had not handled all unexpected messages.
        /// It matches no message before the program has reported all of them.
        bool enabled = true;
        RecvRequest request;
    };
    /// In the order in which they were added, which is the order of matching. The capacity is
    /// reserved when the queue is created.
    std::vector<Entry> entries;
    std::uint32_t max_entries = 0;
    std::uint32_t max_operations = 0;
    /// Number of list operations whose completion was not polled.
    std::uint32_t operations = 0;
    std::uint32_t next_handle = 0;
    /// Number of unexpected messages that have arrived, and that the program has handled.
    std::uint32_t unexpected = 0;
    std::uint32_t handled = 0;
};

/// Checks the attributes of a queue of type IBV_SRQT_TM: 0, or EINVAL.
[[nodiscard]] int check_tag_matching(const Context& context,
                                     const ibv_srq_init_attr_ex& attributes);
/// Makes the empty list of a new queue. Throws std::bad_alloc.
void make_tag_list(Srq& srq, const ibv_srq_init_attr_ex& attributes);
/// Before the queue is destroyed: its completions that were not polled stay, and no longer refer to
/// it.
void forget_operations(Srq& srq) noexcept;

[[nodiscard]] inline bool has_tags(const Qp& qp) noexcept {
    return qp.shared_queue != nullptr && qp.shared_queue->tags != nullptr;
}

/// Whether an enabled buffer matches the tag.
[[nodiscard]] bool has_match(const TagList& list, std::uint64_t tag) noexcept;
/// Removes the first enabled buffer that matches the tag, and returns its receive request.
/// has_match() was true.
[[nodiscard]] RecvRequest match_tag(TagList& list, std::uint64_t tag);

/// Raises the capacities of a queue pair by those that rendezvous messages need.
void add_rendezvous_capacity(ibv_qp_cap& cap) noexcept;
/// Whether the queue pair can start a rendezvous now. Allocates the send queue if necessary.
[[nodiscard]] bool can_start_rendezvous(Qp& qp) noexcept;
/// Reads the data that @p header names to the buffer @p to, and then sends a FIN message with the
/// tag and the user data of @p message. can_start_rendezvous() was true.
void start_rendezvous(Qp& qp, const RecvRequest& to, const ibv_tmh& message, const ibv_rvh& header);
/// Removes the oldest send request, which is one of a rendezvous. Pushes the completion of the
/// tagged buffer when the data has arrived, or when the read has failed or was flushed.
void complete_rendezvous(Qp& qp, ibv_wc_status status);

/// Implements ibv_post_srq_ops(). Locks Process::lock itself.
int post_srq_ops(ibv_srq* native, ibv_ops_wr* operation, ibv_ops_wr** bad);

} // namespace softverbs
