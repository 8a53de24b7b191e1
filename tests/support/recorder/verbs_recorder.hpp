// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

/// Sees what the program asks of verbs. Linked into it, the recorder stands before the ibv_*
/// functions, and in the function pointers of the contexts, queue pairs and device memory that come
/// out of them. Every call goes on as it was made, and what it is answered is not the recorder's.
namespace rdmabuf::testing {

struct Registration {
    std::string function;
    /// The address or, in device memory and dma-bufs, the offset.
    std::uint64_t start;
    std::size_t length;
    std::uint64_t iova;
    int fd;
    unsigned access;
};
/// A call of ibv_advise_mr(3).
struct Advice {
    ibv_advise_mr_advice advice;
    std::uint32_t flags;
    std::vector<ibv_sge> entries;
};
struct CqCreation {
    int depth;
    ibv_comp_channel* channel;
    int vector;
};
struct QpModification {
    std::uint32_t number;
    ibv_qp_attr attributes;
    int mask;
};
struct Send {
    ibv_send_wr request;
    std::vector<ibv_sge> entries;
    /// Instead of entries, with IBV_SEND_INLINE through ibv_wr_*.
    std::vector<std::vector<std::uint8_t>> inline_data;
    /// Made with ibv_wr_*.
    bool extended;
    /// Requests of one call have the same number.
    unsigned call;
    /// The number of the queue pair.
    std::uint32_t queue_pair;
};
struct Receive {
    ibv_recv_wr request;
    std::vector<ibv_sge> entries;
    /// Into a shared receive queue.
    bool shared;
    unsigned call;
};

/// All since forget_calls(), each list in order.
struct Record {
    // Calls, whatever became of them.
    std::vector<Registration> registrations;
    std::vector<QpModification> modifications;
    std::vector<std::uint32_t> srq_limits;
    std::vector<Advice> advice;
    std::vector<bool> notifications; // solicited only?
    /// The number of events in each call of ibv_ack_cq_events().
    std::vector<unsigned> acknowledgements;
    unsigned dm_copies = 0;
    unsigned aborted_batches = 0;

    // What was made of what was asked.
    std::vector<CqCreation> cqs;
    std::vector<ibv_cq_init_attr_ex> extended_cqs;
    std::vector<ibv_srq_init_attr> srqs;
    std::vector<ibv_ah_attr> ahs;
    /// Those made without ibv_create_qp_ex have comp_mask 0.
    std::vector<ibv_qp_init_attr_ex> qps;
    /// The queue pairs of `qps`. Some of them may be destroyed.
    std::vector<ibv_qp*> queue_pairs;

    // Requests the device took, and batches that it did not.
    std::vector<Send> sends;
    std::vector<Send> refused_batches;
    std::vector<Receive> receives;

    /// The kinds of what was destroyed: "list", "context", "pd", "channel", "cq", "srq", "ah",
    /// "mr", "dm", "qp".
    std::vector<std::string> destroyed;
    /// The objects whose last call to destroy them has failed, and their kinds.
    std::vector<std::pair<std::string, void*>> not_destroyed;
};

[[nodiscard]] const Record& record();
void forget_calls();
/// For what is destroyed by other libraries, in between.
void record_destroyed(std::string kind);
/// Until forget_calls(), calls @p observer before each recorded call that creates, modifies or
/// queries an object.
void before_each_call(std::function<void(const char* verb)> observer);

} // namespace rdmabuf::testing
