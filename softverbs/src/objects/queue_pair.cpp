// SPDX-License-Identifier: BSD-3-Clause
#include "objects/queue_pair.hpp"

#include <errno.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "objects/acknowledgements.hpp"
#include "objects/multicast.hpp"
#include "objects/posting.hpp"
#include "objects/process.hpp"
#include "objects/scatter_to_cqe.hpp"
#include "objects/srd.hpp"
#include "objects/tag_matching.hpp"
#include "objects/xrc_domain.hpp"

namespace softverbs {

namespace {

bool has_xrc(const Device& device) {
    return (device.attributes.orig_attr.device_cap_flags & IBV_DEVICE_XRC) != 0;
}

bool within(std::uint32_t value, int most) {
    return value <= static_cast<std::uint32_t>(most);
}

int check_capacities(const Device& device, const ibv_qp_init_attr_ex& attributes) {
    const ibv_device_attr& limits = device.attributes.orig_attr;
    const ibv_qp_cap& cap = attributes.cap;
    const int entries = std::min(limits.max_sge, static_cast<int>(max_sge));
    const bool receives = attributes.srq == nullptr;
    if (device.rules.is_efa) {
        return cap.max_send_wr > efa::max_send_requests ||
                       cap.max_recv_wr > efa::max_receive_requests ||
                       cap.max_send_sge > efa::max_send_sge ||
                       cap.max_recv_sge > efa::max_receive_sge ||
                       cap.max_inline_data > efa::max_inline
                   ? EINVAL
                   : 0;
    }
    if (!within(cap.max_send_wr, limits.max_qp_wr) || !within(cap.max_send_sge, entries) ||
        cap.max_inline_data > device.rules.max_inline ||
        (receives &&
         (!within(cap.max_recv_wr, limits.max_qp_wr) || !within(cap.max_recv_sge, entries)))) {
        return EINVAL;
    }
    return 0;
}

/// Checks that libefa supports the attributes of a new queue pair. Returns 0 or an errno.
int check_efa(const ibv_qp_init_attr_ex& attributes) {
    constexpr unsigned supported = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if ((attributes.comp_mask & ~supported) != 0) {
        return EOPNOTSUPP;
    }
    return attributes.srq != nullptr ? EINVAL : 0;
}

/// Rounds the capacities up as libefa does: the number of requests in the send queue, and the total
/// number of scatter/gather entries in the receive queue, become powers of two.
void round_up(ibv_qp_cap& cap) {
    cap.max_send_wr = cap.max_send_wr == 0 ? 0 : std::bit_ceil(cap.max_send_wr);
    if (cap.max_recv_wr != 0 && cap.max_recv_sge != 0) {
        cap.max_recv_wr = std::bit_ceil(cap.max_recv_sge * cap.max_recv_wr) / cap.max_recv_sge;
    }
}

int check(Context& context, const ibv_qp_init_attr_ex& attributes, bool is_srd) {
    constexpr unsigned known = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS * 2 - 1;
    unsigned supported =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const ibv_qp_type type = attributes.qp_type;
    const bool xrc =
        has_xrc(*context.device) && (type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV);
    if (xrc && type == IBV_QPT_XRC_RECV) {
        supported = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD;
    }
    const auto has = [&attributes](unsigned bit) { return (attributes.comp_mask & bit) != 0; };
    const auto is_here = [&context](const auto* object) {
        return object != nullptr && object->context == &context.context;
    };
    if (has(~known) || !has(type == IBV_QPT_XRC_RECV ? unsigned{IBV_QP_INIT_ATTR_XRCD}
                                                     : unsigned{IBV_QP_INIT_ATTR_PD})) {
        return EINVAL;
    }
    if (context.device->rules.is_efa && (type == IBV_QPT_UD || is_srd)) {
        if (const int error = check_efa(attributes); error != 0) {
            return error;
        }
    }
    if (has(~supported) || (has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attributes.create_flags != 0)) {
        return EOPNOTSUPP;
    }
    if (static_cast<unsigned>(type) < 32 &&
        (context.device->rules.refused_qp_types & 1U << static_cast<unsigned>(type)) != 0) {
        return context.device->rules.refused_qp_type_error;
    }
    // As drivers do, return EOPNOTSUPP for types that are not supported, such as raw packet queue
    // pairs.
    if (type != IBV_QPT_RC && type != IBV_QPT_UC && type != IBV_QPT_UD && !xrc && !is_srd) {
        return EOPNOTSUPP;
    }
    if (type == IBV_QPT_XRC_RECV) {
        if (!is_here(attributes.xrcd)) {
            return EINVAL;
        }
    } else if (!is_here(attributes.pd) || !is_here(attributes.send_cq) ||
               (!xrc && !is_here(attributes.recv_cq)) ||
               (attributes.srq != nullptr && (xrc || !is_here(attributes.srq)))) {
        return EINVAL;
    }
    // The device supports tag matching only for RC queue pairs (IBV_TM_CAP_RC).
    if (type != IBV_QPT_RC && attributes.srq != nullptr &&
        static_cast<Srq*>(attributes.srq)->tags != nullptr) {
        return EINVAL;
    }
    if (has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
        (attributes.send_ops_flags & ~supported_ops(*context.device, type)) != 0) {
        return EOPNOTSUPP;
    }
    if (!may_create(SOFTVERBS_QP, context.device->attributes.orig_attr.max_qp)) {
        return ENOMEM;
    }
    return type == IBV_QPT_XRC_RECV ? 0 : check_capacities(*context.device, attributes);
}

/// Adds @p change (1 or -1) to the user counts of the context, the PD, the CQs and the SRQ of the
/// queue pair.
void count(Qp& qp, int change) {
    const auto add = [change](auto& users) { users += static_cast<unsigned>(change); };
    count(context_of(qp.qp_base), SOFTVERBS_QP, change);
    add(static_cast<Pd*>(qp.qp_base.pd)->users);
    add(qp.send_queue->users);
    if (qp.recv_queue != nullptr) {
        add(qp.recv_queue->users);
    }
    if (has_tags(qp) && qp.recv_queue->native() != qp.qp_base.recv_cq) {
        add(Cq::of(qp.qp_base.recv_cq).users);
    }
    if (qp.shared_queue != nullptr) {
        add(qp.shared_queue->users);
    }
}

} // namespace

int obtain_memory(Context& context, const ibv_qp_init_attr_ex& attributes, QueueMemory& memory) {
    const ibv_qp_cap& cap = attributes.cap;
    const int most = context.device->attributes.orig_attr.max_qp_wr;
    if ((attributes.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 ||
        attributes.qp_type == IBV_QPT_XRC_RECV || !within(cap.max_send_wr, most) ||
        !within(cap.max_recv_wr, most)) {
        return 0; // an XRC target has no queues; create_qp() will reject the other cases
    }
    const std::size_t receives = attributes.srq == nullptr && attributes.qp_type != IBV_QPT_XRC_SEND
                                     ? Ring<RecvRequest>(cap.max_recv_wr).bytes()
                                     : 0;
    return memory.obtain(
        attributes.pd,
        aligned_size(Ring<SendRequest>(cap.max_send_wr).bytes()) + aligned_size(receives),
        MLX5DV_RES_TYPE_QP);
}

Qp::Qp() : ibv_qp_ex{} {}
Qp::~Qp() = default;

Qp* create_qp(Context& context, ibv_qp_init_attr_ex& attributes, QueueMemory& memory,
              ScatterRequest scatter, bool is_srd) {
    if (const int error = check(context, attributes, is_srd); error != 0) {
        return fail(error);
    }
    if (context.device->rules.is_efa) {
        round_up(attributes.cap);
    }
    if (const int error = process().engine.start(); error != 0) {
        return fail(error);
    }
    const bool is_target = attributes.qp_type == IBV_QPT_XRC_RECV;
    if (is_target) {
        attributes.cap = {};
        attributes.pd = nullptr;
        attributes.send_cq = nullptr;
    }
    if (is_target || attributes.qp_type == IBV_QPT_XRC_SEND) {
        attributes.recv_cq = nullptr;
        attributes.srq = nullptr;
        attributes.cap.max_recv_wr = attributes.cap.max_recv_sge = 0;
    }
    Srq* const shared = static_cast<Srq*>(attributes.srq);
    if (shared != nullptr) {
        attributes.cap.max_recv_wr = attributes.cap.max_recv_sge = 0;
        if (shared->tags != nullptr) {
            add_rendezvous_capacity(attributes.cap);
        }
    }
    auto qp = std::make_unique<Qp>();
    if (is_srd) {
        qp->srd = std::make_unique<Srd>();
    }
    if (context.device->rules.is_mlx5) {
        qp->scatter_to_cqe = make_scatter_to_cqe(attributes, scatter);
    }
    const std::uint32_t number = process().qps.insert(*qp, process().engine.slot());
    if (number == 0) {
        return fail(ENOMEM);
    }
    ibv_qp& base = qp->qp_base;
    base.context = &context.context;
    base.qp_context = attributes.qp_context;
    base.pd = attributes.pd;
    base.send_cq = attributes.send_cq;
    base.recv_cq = attributes.recv_cq;
    base.srq = attributes.srq;
    base.handle = number;
    base.qp_num = number;
    base.state = IBV_QPS_RESET;
    base.qp_type = attributes.qp_type;
    pthread_mutex_init(&base.mutex, nullptr);
    pthread_cond_init(&base.cond, nullptr);
    qp->init = attributes;
    qp->attributes.cap = attributes.cap;
    qp->attributes.path_mig_state = IBV_MIG_MIGRATED;
    qp->signal_all = attributes.sq_sig_all != 0;
    qp->memory = std::move(memory);
    qp->ece_options = context.device->rules.is_mlx5 ? supported_ece_options : 0;
    qp->extended = (attributes.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    if (is_target) {
        auto& xrcd = *static_cast<Xrcd*>(attributes.xrcd);
        qp->domain = xrcd.domain;
        Qp* const handle = make_handle(*qp, xrcd, attributes.qp_context);
        if (handle == nullptr) {
            process().qps.erase(number);
        } else {
            static_cast<void>(qp.release());
        }
        return handle;
    }
    qp->send_queue = &Cq::of(attributes.send_cq);
    qp->recv_queue = attributes.recv_cq != nullptr ? &Cq::of(attributes.recv_cq) : nullptr;
    qp->shared_queue = shared;
    if (has_tags(*qp)) {
        qp->recv_queue = shared->queue; // its messages complete in the CQ of the SRQ
    }
    qp->sends = Ring<SendRequest>(attributes.cap.max_send_wr);
    qp->receives = Ring<RecvRequest>(attributes.cap.max_recv_wr);
    if (qp->extended) {
        set_work_request_functions(*qp);
    }
    count(*qp, 1);
    return qp.release();
}

void query_qp(const Qp& qp, ibv_qp_attr& attributes, ibv_qp_init_attr& init) {
    if (qp.target != nullptr) {
        query_qp(*qp.target, attributes, init);
        init.qp_context = qp.qp_base.qp_context;
        return;
    }
    attributes = qp.attributes;
    attributes.qp_state = attributes.cur_qp_state = qp.state();
    init = {};
    init.qp_context = qp.qp_base.qp_context;
    init.send_cq = qp.qp_base.send_cq;
    init.recv_cq = qp.qp_base.recv_cq;
    init.srq = qp.qp_base.srq;
    init.cap = qp.init.cap;
    init.qp_type = qp.type();
    init.sq_sig_all = qp.init.sq_sig_all;
}

namespace {

/// Executes what has arrived for the queue pair, and removes all references to it.
void remove(Qp& qp) {
    process().engine.leaving(qp);
    process().engine.destroyed(qp);
    forget_work(qp);
    process().qps.erase(qp.number());
    qp.current_state = IBV_QPS_RESET;
}

/// Implements ibv_destroy_qp() for a handle of an XRC target queue pair. Waits until the program
/// has acknowledged all events of the handle. Destroys the target queue pair when its last handle
/// is destroyed.
int destroy_handle(Qp& handle, std::unique_lock<Lock>& lock) {
    Qp& target = *handle.target;
    std::erase(target.handles, &handle);
    if (target.handles.empty()) {
        remove(target);
        delete &target;
    } else if (target.qp_base.context == handle.qp_base.context) {
        target.qp_base.context = target.handles.front()->qp_base.context;
    }
    // No new asynchronous event can be raised for this handle now. Remove its queued events before
    // the wait for acknowledgements, so that the program receives no further event of this handle.
    forget_events(context_of(handle.qp_base), handle.native());
    process().engine.wait_for_writes();
    wait_for_acknowledgements(handle, lock);
    --handle.xrcd->users;
    count(context_of(handle.qp_base), SOFTVERBS_QP, -1);
    pthread_cond_destroy(&handle.qp_base.cond);
    pthread_mutex_destroy(&handle.qp_base.mutex);
    delete &handle;
    return 0;
}

} // namespace

int destroy_qp(Qp& qp) {
    QueueMemory memory; // freed after the lock is released
    std::unique_lock lock(process().lock);
    if (qp.target != nullptr) {
        return destroy_handle(qp, lock);
    }
    if (is_attached(qp)) {
        return busy(); // as in the kernel
    }
    remove(qp);
    forget_events(context_of(qp.qp_base), qp.native());
    process().engine.wait_for_writes();
    wait_for_acknowledgements(qp, lock);
    count(qp, -1);
    pthread_cond_destroy(&qp.qp_base.cond);
    pthread_mutex_destroy(&qp.qp_base.mutex);
    memory = std::move(qp.memory);
    delete &qp;
    return 0;
}

} // namespace softverbs
