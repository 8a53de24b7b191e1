// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

/// Records the verbs calls of the program that links the recorder. The recorder defines ibv_*
/// functions, and replaces function pointers in contexts, queue pairs and device memory. It passes
/// each call on unchanged to the original function, and returns its result.
namespace rdmabuf::testing {

struct Registration {
    std::string function;
    /// The address; for device memory and dma-bufs, the offset.
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
    /// The inline data of a request that ibv_wr_*() built; `entries` is then empty.
    std::vector<std::vector<std::uint8_t>> inline_data;
    /// True if ibv_wr_*() built the request, false for ibv_post_send(3).
    bool extended;
    /// The ordinal of the posting call, which all requests of one call share.
    unsigned call;
    /// The number of the queue pair.
    std::uint32_t queue_pair;
};
struct Receive {
    ibv_recv_wr request;
    std::vector<ibv_sge> entries;
    /// True for a shared receive queue.
    bool shared;
    unsigned call;
};

/// The calls since forget_calls(). Each list is in chronological order.
struct Record {
    // All calls, also those that failed.
    std::vector<Registration> registrations;
    std::vector<QpModification> modifications;
    std::vector<std::uint32_t> srq_limits;
    std::vector<Advice> advice;
    std::vector<bool> notifications; // true: solicited only
    /// The number of events in each call of ibv_ack_cq_events().
    std::vector<unsigned> acknowledgements;
    unsigned dm_copies = 0;
    unsigned aborted_batches = 0;

    // The arguments of the calls that created an object.
    std::vector<CqCreation> cqs;
    std::vector<ibv_cq_init_attr_ex> extended_cqs;
    std::vector<ibv_srq_init_attr> srqs;
    std::vector<ibv_ah_attr> ahs;
    /// Those made without ibv_create_qp_ex have comp_mask 0.
    std::vector<ibv_qp_init_attr_ex> qps;
    /// The queue pairs of `qps`. Some of them may be destroyed.
    std::vector<ibv_qp*> queue_pairs;

    // Accepted requests, and the requests of refused batches.
    std::vector<Send> sends;
    std::vector<Send> refused_batches;
    std::vector<Receive> receives;

    /// The kinds of the destroyed objects: "list", "context", "pd", "channel", "cq", "srq", "ah",
    /// "mr", "dm", "qp".
    std::vector<std::string> destroyed;
    /// The objects whose last call to destroy them has failed, and their kinds.
    std::vector<std::pair<std::string, void*>> not_destroyed;
};

[[nodiscard]] const Record& record();
void forget_calls();
/// Records an object that another library destroys, such as librdmacm.
void record_destroyed(std::string kind);
/// Until forget_calls(), calls @p observer before each recorded call that creates, modifies or
/// queries an object.
void before_each_call(std::function<void(const char* verb)> observer);
/// Until forget_calls(), calls @p observer before each call of ibv_dereg_mr(3).
void before_each_deregistration(std::function<void()> observer);

} // namespace rdmabuf::testing
