// SPDX-License-Identifier: BSD-3-Clause
// Replaces the functions that verbs.h calls by pointers in a context or in device memory.
#include <map>
#include <utility>

#include "state.hpp"

namespace rdmabuf::testing::recorder {
namespace {

/// The function pointers that the recorder has replaced.
struct Operations {
    ibv_context_ops ops{};
    decltype(verbs_context::create_qp_ex) create_qp_ex = nullptr;
    decltype(verbs_context::create_cq_ex) create_cq_ex = nullptr;
    decltype(verbs_context::alloc_dm) alloc_dm = nullptr;
    decltype(verbs_context::free_dm) free_dm = nullptr;
    decltype(verbs_context::reg_dm_mr) reg_dm_mr = nullptr;
    decltype(verbs_context::advise_mr) advise_mr = nullptr;
};
struct Copying {
    decltype(ibv_dm::memcpy_to_dm) to = nullptr;
    decltype(ibv_dm::memcpy_from_dm) from = nullptr;
};

std::map<ibv_context*, Operations>& contexts() {
    static std::map<ibv_context*, Operations> the_contexts;
    return the_contexts;
}
std::map<ibv_dm*, Copying>& memories() {
    static std::map<ibv_dm*, Copying> the_memories;
    return the_memories;
}

Operations original(ibv_context* context) {
    const Writing lock;
    return contexts().at(context);
}
Copying original(ibv_dm* dm) {
    const Writing lock;
    return memories().at(dm);
}

/// Posts a list of requests, and records those that were accepted.
template <class Request, class Queue, class Post, class Keep>
int post(Post* original, Queue* queue, Request* request, Request** failed, const Keep& keep) {
    const int error = original(queue, request, failed);
    const Writing lock;
    const unsigned call = ++state().posting_calls;
    const Request* const end = error == 0 ? nullptr : *failed;
    for (; request != end; request = request->next) {
        keep(*request, std::vector<ibv_sge>(request->sg_list, request->sg_list + request->num_sge),
             call);
    }
    return error;
}

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** failed) {
    notify_observer("ibv_post_send");
    return post(
        original(qp->context).ops.post_send, qp, request, failed,
        [qp](const ibv_send_wr& taken, std::vector<ibv_sge> entries, unsigned call) {
            Writing()->sends.push_back({taken, std::move(entries), {}, false, call, qp->qp_num});
        });
}

int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** failed) {
    notify_observer("ibv_post_recv");
    return post(original(qp->context).ops.post_recv, qp, request, failed,
                [](const ibv_recv_wr& taken, std::vector<ibv_sge> entries, unsigned call) {
                    Writing()->receives.push_back({taken, std::move(entries), false, call});
                });
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* request, ibv_recv_wr** failed) {
    notify_observer("ibv_post_srq_recv");
    return post(original(srq->context).ops.post_srq_recv, srq, request, failed,
                [](const ibv_recv_wr& taken, std::vector<ibv_sge> entries, unsigned call) {
                    Writing()->receives.push_back({taken, std::move(entries), true, call});
                });
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
    notify_observer("ibv_req_notify_cq");
    Writing()->notifications.push_back(solicited_only != 0);
    return original(cq->context).ops.req_notify_cq(cq, solicited_only);
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
    notify_observer("ibv_create_qp_ex");
    const ibv_qp_init_attr_ex asked = *attributes;
    ibv_qp* const qp = original(context).create_qp_ex(context, attributes);
    if (qp != nullptr) {
        Writing()->qps.push_back(asked);
        Writing()->queue_pairs.push_back(qp);
        enter_queue_pair(qp);
    }
    return qp;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
    notify_observer("ibv_create_cq_ex");
    const ibv_cq_init_attr_ex asked = *attributes;
    ibv_cq_ex* const cq = original(context).create_cq_ex(context, attributes);
    if (cq != nullptr) {
        Writing()->extended_cqs.push_back(asked);
    }
    return cq;
}

int copy_to_dm(ibv_dm* dm, std::uint64_t offset, const void* host, std::size_t length) {
    notify_observer("ibv_memcpy_to_dm");
    ++Writing()->dm_copies;
    return original(dm).to(dm, offset, host, length);
}

int copy_from_dm(void* host, ibv_dm* dm, std::uint64_t offset, std::size_t length) {
    notify_observer("ibv_memcpy_from_dm");
    ++Writing()->dm_copies;
    return original(dm).from(host, dm, offset, length);
}

/// Returns false for a pointer that a provider has left uninitialised.
template <class Function>
bool is_code(Function* function) {
    Dl_info info{};
    return ::dladdr(reinterpret_cast<void*>(function), &info) != 0;
}

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes) {
    notify_observer("ibv_alloc_dm");
    ibv_dm* const dm = original(context).alloc_dm(context, attributes);
    if (dm != nullptr) {
        const Writing lock;
        memories()[dm] = {dm->memcpy_to_dm, dm->memcpy_from_dm};
        dm->memcpy_to_dm = is_code(dm->memcpy_to_dm) ? copy_to_dm : dm->memcpy_to_dm;
        dm->memcpy_from_dm = is_code(dm->memcpy_from_dm) ? copy_from_dm : dm->memcpy_from_dm;
    }
    return dm;
}

int free_dm(ibv_dm* dm) {
    const int error = original(dm->context).free_dm(dm);
    if (error == 0) {
        const Writing lock;
        memories().erase(dm);
        record_destroyed("dm");
    }
    return error;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length,
                  unsigned access) {
    notify_observer("ibv_reg_dm_mr");
    Writing()->registrations.push_back({"ibv_reg_dm_mr", offset, length, 0, -1, access});
    return original(pd->context).reg_dm_mr(pd, dm, offset, length, access);
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* entries,
              std::uint32_t count) {
    notify_observer("ibv_advise_mr");
    Writing()->advice.push_back({advice, flags, {entries, entries + count}});
    return original(pd->context).advise_mr(pd, advice, flags, entries, count);
}

template <class Function>
void replace(Function*& here, Function* by) {
    here = here != nullptr ? by : nullptr;
}

} // namespace

void enter_context(ibv_context* context) {
    const Writing lock;
    verbs_context& whole = *verbs_get_ctx(context);
    contexts()[context] = {context->ops,  whole.create_qp_ex, whole.create_cq_ex, whole.alloc_dm,
                           whole.free_dm, whole.reg_dm_mr,    whole.advise_mr};
    replace(context->ops.post_send, post_send);
    replace(context->ops.post_recv, post_recv);
    replace(context->ops.post_srq_recv, post_srq_recv);
    replace(context->ops.req_notify_cq, req_notify_cq);
    replace(whole.create_qp_ex, create_qp_ex);
    replace(whole.create_cq_ex, create_cq_ex);
    replace(whole.alloc_dm, alloc_dm);
    replace(whole.free_dm, free_dm);
    replace(whole.reg_dm_mr, reg_dm_mr);
    replace(whole.advise_mr, advise_mr);
}

void leave_context(ibv_context* context) {
    const Writing lock;
    contexts().erase(context);
}

} // namespace rdmabuf::testing::recorder
