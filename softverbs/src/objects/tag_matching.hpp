// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "objects/queue_pair.hpp"

// Tag matching: shared receive queues of type IBV_SRQT_TM; see ibv_post_srq_ops(3). The program
// adds buffers with tags to the queue. If a message begins with a tag matching header (ibv_tmh)
// whose tag matches that of a buffer, its data is stored in this buffer, without the header. All
// other messages consume ordinary receive requests.

namespace softverbs {

/// Limits of tag matching, which ibv_query_device_ex() returns in ibv_tm_caps.
/// max_rendezvous_header is a length in bytes.
inline constexpr std::uint32_t max_rendezvous_header = 64;
inline constexpr std::uint32_t max_tags = 127;
inline constexpr std::uint32_t max_tag_operations = 16384;
inline constexpr std::uint32_t max_tag_sge = 1;

/// Number of send requests that are added to the capacity of a queue pair whose shared receive
/// queue matches tags. A rendezvous message needs two of them, for an RDMA read and a FIN message.
inline constexpr std::uint32_t rendezvous_requests = 64;
/// A bit in SendRequest::flags. It marks the requests that softverbs itself posts for a rendezvous
/// of tag matching. ibv_post_send() rejects requests with this flag.
inline constexpr unsigned rendezvous_flag = 1U << 31U;

/// The tagged buffers of a shared receive queue, and the state of their matching.
struct TagList {
    struct Entry {
        std::uint32_t handle = 0;
        std::uint64_t tag = 0;
        std::uint64_t mask = 0;
        /// False if the program added this buffer before it had handled all unexpected messages.
        /// The buffer matches no message until the program has reported that it has handled all
        /// unexpected messages.
        bool enabled = true;
        RecvRequest request;
    };
    /// The tagged buffers in the order in which they were added. A message is stored in the first
    /// buffer that matches. The capacity of the vector is reserved when the shared receive queue is
    /// created.
    std::vector<Entry> entries;
    std::uint32_t max_entries = 0;
    std::uint32_t max_operations = 0;
    /// Number of ibv_post_srq_ops() operations whose completions the program has not polled.
    std::uint32_t operations = 0;
    std::uint32_t next_handle = 0;
    /// Number of unexpected messages that have arrived. Such a message has a tag, but has consumed
    /// an ordinary receive request.
    std::uint32_t unexpected = 0;
    /// Number of unexpected messages that the program has handled, as it has reported with
    /// IBV_OPS_TM_SYNC.
    std::uint32_t handled = 0;
};

/// Checks the attributes for a shared receive queue of type IBV_SRQT_TM. Returns 0 or EINVAL.
[[nodiscard]] int check_tag_matching(const Context& context,
                                     const ibv_srq_init_attr_ex& attributes);
/// Creates the list of tagged buffers of a new shared receive queue. Throws std::bad_alloc.
void make_tag_list(Srq& srq, const ibv_srq_init_attr_ex& attributes);

[[nodiscard]] inline bool has_tags(const Qp& qp) noexcept {
    return qp.shared_queue != nullptr && qp.shared_queue->tags != nullptr;
}

/// Returns the first enabled tagged buffer that matches the tag of a message, or entries.end().
[[nodiscard]] std::vector<TagList::Entry>::iterator find_match(TagList& list,
                                                               std::uint64_t tag) noexcept;

/// Increases the capacities of a queue pair, so that its send queue has room for the RDMA reads and
/// FIN messages of rendezvous messages.
void add_rendezvous_capacity(ibv_qp_cap& cap) noexcept;
/// Returns whether the queue pair can start a rendezvous (an RDMA read of the sender's data): its
/// state is RTS, and its send queue has room for an RDMA read and a FIN message. Allocates the
/// memory of the send queue if necessary.
[[nodiscard]] bool can_start_rendezvous(Qp& qp) noexcept;
/// Starts a rendezvous: posts an RDMA read from the memory that @p header describes to the buffer
/// @p to, and a FIN message with the tag and user data of @p message. can_start_rendezvous() must
/// have returned true.
void start_rendezvous(Qp& qp, const RecvRequest& to, const ibv_tmh& message, const ibv_rvh& header);
/// Removes the oldest request from the send queue. softverbs itself must have posted this request
/// for a rendezvous of tag matching: an RDMA read or a FIN message. For the RDMA read, pushes the
/// completion of the tagged buffer: IBV_WC_SUCCESS, or IBV_WC_TM_RNDV_INCOMPLETE if @p status is an
/// error.
void complete_rendezvous(Qp& qp, ibv_wc_status status);

/// Implements ibv_post_srq_ops(). Takes Process::lock itself.
int post_srq_ops(ibv_srq* native, ibv_ops_wr* operation, ibv_ops_wr** bad);

} // namespace softverbs
