// SPDX-License-Identifier: BSD-3-Clause
// The ibv_*() functions of the program, which the dynamic linker prefers to those of libibverbs.
#include "verbs_recorder.hpp"

#include <utility>

#include "state.hpp"

namespace rdmabuf::testing {

recorder::State& recorder::state() {
    static State the_state;
    return the_state;
}

void recorder::notify_observer(const char* verb) {
    std::function<void(const char*)> observer;
    {
        const std::scoped_lock lock(state().mutex);
        observer = state().observer;
    }
    if (observer) {
        observer(verb);
    }
}

const Record& record() {
    return recorder::state().record;
}

void forget_calls() {
    const std::scoped_lock lock(recorder::state().mutex);
    recorder::state().record = {};
    recorder::state().observer = nullptr;
    recorder::state().deregistration_observer = nullptr;
    recorder::state().posting_calls = 0;
}

void record_destroyed(std::string kind) {
    recorder::Writing()->destroyed.push_back(std::move(kind));
}

void before_each_call(std::function<void(const char* verb)> observer) {
    const std::scoped_lock lock(recorder::state().mutex);
    recorder::state().observer = std::move(observer);
}

void before_each_deregistration(std::function<void()> observer) {
    const std::scoped_lock lock(recorder::state().mutex);
    recorder::state().deregistration_observer = std::move(observer);
}

} // namespace rdmabuf::testing

namespace recorder = rdmabuf::testing::recorder;
using rdmabuf::testing::record_destroyed;
using recorder::next;
using recorder::notify_observer;
using recorder::Writing;

namespace {

/// Records the result of a call that destroys @p object.
int destroyed(int result, const char* kind, void* object) {
    const recorder::Writing writing;
    std::erase(writing->not_destroyed, std::pair<std::string, void*>(kind, object));
    if (result == 0) {
        writing->destroyed.emplace_back(kind);
    } else {
        writing->not_destroyed.emplace_back(kind, object);
    }
    return result;
}

} // namespace

ibv_context* ibv_open_device(ibv_device* device) {
    static auto* const original = next<decltype(ibv_open_device)>("ibv_open_device");
    notify_observer("ibv_open_device");
    ibv_context* const context = original(device);
    if (context != nullptr) {
        recorder::enter_context(context);
    }
    return context;
}

int ibv_close_device(ibv_context* context) {
    static auto* const original = next<decltype(ibv_close_device)>("ibv_close_device");
    const int result = destroyed(original(context), "context", context);
    if (result == 0) {
        recorder::leave_context(context);
    }
    return result;
}

void ibv_free_device_list(ibv_device** list) {
    static auto* const original = next<decltype(ibv_free_device_list)>("ibv_free_device_list");
    original(list);
    record_destroyed("list");
}

int ibv_dealloc_pd(ibv_pd* pd) {
    static auto* const original = next<decltype(ibv_dealloc_pd)>("ibv_dealloc_pd");
    return destroyed(original(pd), "pd", pd);
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                         unsigned access) {
    static auto* const original = next<decltype(ibv_reg_mr_iova2)>("ibv_reg_mr_iova2");
    notify_observer("ibv_reg_mr");
    Writing()->registrations.push_back(
        {"ibv_reg_mr_iova2", reinterpret_cast<std::uintptr_t>(address), length, iova, -1, access});
    return original(pd, address, length, iova, access);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                          int fd, int access) {
    static auto* const original = next<decltype(ibv_reg_dmabuf_mr)>("ibv_reg_dmabuf_mr");
    notify_observer("ibv_reg_dmabuf_mr");
    Writing()->registrations.push_back(
        {"ibv_reg_dmabuf_mr", offset, length, iova, fd, static_cast<unsigned>(access)});
    return original(pd, offset, length, iova, fd, access);
}

int ibv_dereg_mr(ibv_mr* mr) {
    static auto* const original = next<decltype(ibv_dereg_mr)>("ibv_dereg_mr");
    std::function<void()> observer;
    {
        const std::scoped_lock lock(recorder::state().mutex);
        observer = recorder::state().deregistration_observer;
    }
    if (observer) {
        observer();
    }
    return destroyed(original(mr), "mr", mr);
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
    static auto* const original =
        next<decltype(ibv_destroy_comp_channel)>("ibv_destroy_comp_channel");
    return destroyed(original(channel), "channel", channel);
}

ibv_cq* ibv_create_cq(ibv_context* context, int depth, void* cq_context, ibv_comp_channel* channel,
                      int vector) {
    static auto* const original = next<decltype(ibv_create_cq)>("ibv_create_cq");
    notify_observer("ibv_create_cq");
    ibv_cq* const cq = original(context, depth, cq_context, channel, vector);
    if (cq != nullptr) {
        Writing()->cqs.push_back({depth, channel, vector});
    }
    return cq;
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
    static auto* const original = next<decltype(ibv_ack_cq_events)>("ibv_ack_cq_events");
    Writing()->acknowledgements.push_back(count);
    original(cq, count);
}

int ibv_destroy_cq(ibv_cq* cq) {
    static auto* const original = next<decltype(ibv_destroy_cq)>("ibv_destroy_cq");
    return destroyed(original(cq), "cq", cq);
}

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
    static auto* const original = next<decltype(ibv_create_srq)>("ibv_create_srq");
    notify_observer("ibv_create_srq");
    const ibv_srq_init_attr asked = *attributes;
    ibv_srq* const srq = original(pd, attributes);
    if (srq != nullptr) {
        Writing()->srqs.push_back(asked);
    }
    return srq;
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask) {
    static auto* const original = next<decltype(ibv_modify_srq)>("ibv_modify_srq");
    notify_observer("ibv_modify_srq");
    if ((mask & IBV_SRQ_LIMIT) != 0) {
        Writing()->srq_limits.push_back(attributes->srq_limit);
    }
    return original(srq, attributes, mask);
}

int ibv_destroy_srq(ibv_srq* srq) {
    static auto* const original = next<decltype(ibv_destroy_srq)>("ibv_destroy_srq");
    return destroyed(original(srq), "srq", srq);
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
    static auto* const original = next<decltype(ibv_create_ah)>("ibv_create_ah");
    notify_observer("ibv_create_ah");
    ibv_ah* const ah = original(pd, attributes);
    if (ah != nullptr) {
        Writing()->ahs.push_back(*attributes);
    }
    return ah;
}

int ibv_destroy_ah(ibv_ah* ah) {
    static auto* const original = next<decltype(ibv_destroy_ah)>("ibv_destroy_ah");
    return destroyed(original(ah), "ah", ah);
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
    static auto* const original = next<decltype(ibv_create_qp)>("ibv_create_qp");
    notify_observer("ibv_create_qp");
    ibv_qp_init_attr_ex asked{};
    asked.send_cq = attributes->send_cq;
    asked.recv_cq = attributes->recv_cq;
    asked.srq = attributes->srq;
    asked.cap = attributes->cap;
    asked.qp_type = attributes->qp_type;
    asked.sq_sig_all = attributes->sq_sig_all;
    asked.pd = pd;
    ibv_qp* const qp = original(pd, attributes);
    if (qp != nullptr) {
        Writing()->qps.push_back(asked);
        Writing()->queue_pairs.push_back(qp);
    }
    return qp;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
    static auto* const original = next<decltype(ibv_modify_qp)>("ibv_modify_qp");
    notify_observer("ibv_modify_qp");
    Writing()->modifications.push_back({qp->qp_num, *attributes, mask});
    return original(qp, attributes, mask);
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init) {
    static auto* const original = next<decltype(ibv_query_qp)>("ibv_query_qp");
    notify_observer("ibv_query_qp");
    return original(qp, attributes, mask, init);
}

int ibv_destroy_qp(ibv_qp* qp) {
    static auto* const original = next<decltype(ibv_destroy_qp)>("ibv_destroy_qp");
    const int result = destroyed(original(qp), "qp", qp);
    if (result == 0) {
        recorder::leave_queue_pair(qp);
    }
    return result;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
    static auto* const original = next<decltype(ibv_get_cq_event)>("ibv_get_cq_event");
    notify_observer("ibv_get_cq_event");
    return original(channel, cq, cq_context);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    static auto* const original = next<decltype(ibv_get_async_event)>("ibv_get_async_event");
    notify_observer("ibv_get_async_event");
    return original(context, event);
}
