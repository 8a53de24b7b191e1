// SPDX-License-Identifier: BSD-3-Clause
#include "objects/posting.hpp"

#include <errno.h>

#include <algorithm>
#include <new>

#include "objects/copy_bytes.hpp"
#include "objects/process.hpp"

namespace softverbs {

namespace {

// Sets of operations. Except for IBV_WR_ATOMIC_WRITE, which only ibv_wr_atomic_write() can post,
// the bit of an opcode is 1 << opcode.
constexpr std::uint64_t datagram_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t simple_ops =
    datagram_ops | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
constexpr std::uint64_t inline_ops = simple_ops | IBV_QP_EX_WITH_SEND_WITH_INV;
constexpr std::uint64_t local_ops = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
constexpr std::uint64_t atomic_ops =
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
constexpr std::uint64_t reliable_ops =
    inline_ops | local_ops | IBV_QP_EX_WITH_RDMA_READ | atomic_ops | IBV_QP_EX_WITH_ATOMIC_WRITE;
static_assert(IBV_QP_EX_WITH_RDMA_WRITE == 1 << IBV_WR_RDMA_WRITE &&
              IBV_QP_EX_WITH_SEND_WITH_INV == 1 << IBV_WR_SEND_WITH_INV);

constexpr unsigned known_send_flags =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

bool is_one_of(ibv_wr_opcode opcode, std::uint64_t ops) noexcept {
    return opcode >= 0 && opcode <= IBV_WR_SEND_WITH_INV && (ops >> opcode & 1U) != 0;
}

/// Calls @p allocate. Returns 0, or ENOMEM if it throws std::bad_alloc.
template <class Allocate>
int allocating(const Allocate& allocate) noexcept {
    try {
        allocate();
        return 0;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

/// Copies the members of the work request that depend on its opcode or on the type of the queue
/// pair. Returns 0 or an errno.
int set_operation(const Qp& qp, SendRequest& request, const ibv_send_wr& wanted) {
    switch (wanted.opcode) {
        case IBV_WR_SEND_WITH_INV:
        case IBV_WR_LOCAL_INV:
            request.invalidate_rkey = wanted.invalidate_rkey;
            break;
        case IBV_WR_SEND_WITH_IMM:
            request.imm_data = wanted.imm_data;
            break;
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            request.imm_data = wanted.imm_data;
            [[fallthrough]];
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_READ:
            request.remote_address = wanted.wr.rdma.remote_addr;
            request.rkey = wanted.wr.rdma.rkey;
            break;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            request.remote_address = wanted.wr.atomic.remote_addr;
            request.rkey = wanted.wr.atomic.rkey;
            request.compare_add = wanted.wr.atomic.compare_add;
            request.swap = wanted.wr.atomic.swap;
            break;
        case IBV_WR_BIND_MW:
            return set_bind(qp, request, wanted.bind_mw.mw, wanted.bind_mw.rkey,
                            wanted.bind_mw.bind_info);
        default:
            break;
    }
    if (qp.type() == IBV_QPT_XRC_SEND) {
        request.remote_qkey = wanted.qp_type.xrc.remote_srqn;
    }
    return is_datagram(qp.type())
               ? set_destination(qp, request, wanted.wr.ud.ah, wanted.wr.ud.remote_qpn,
                                 wanted.wr.ud.remote_qkey)
               : 0;
}

/// Copies the scatter/gather list or the inline data of the work request to the entry of the send
/// queue at @p position. Returns 0 or an errno.
int set_data(Qp& qp, std::uint64_t position, const ibv_send_wr& wanted) {
    if (is_one_of(wanted.opcode, local_ops)) {
        return 0;
    }
    if (wanted.num_sge < 0 ||
        static_cast<std::uint32_t>(wanted.num_sge) > qp.init.cap.max_send_sge) {
        return EINVAL;
    }
    const std::span<const ibv_sge> entries(wanted.sg_list,
                                           static_cast<std::size_t>(wanted.num_sge));
    if ((wanted.send_flags & IBV_SEND_INLINE) == 0) {
        set_entries(qp, position, entries);
        return 0;
    }
    const int error = allocate_inline(qp);
    return error != 0 ? error : set_inline_data(qp, position, entries);
}

/// Adds a request of a frequent kind to the send queue: a send or write on an RC or UC queue pair,
/// with one scatter/gather entry or inline data. Returns false for all other requests and for
/// invalid requests, if the queue is full, and if the buffers for inline data are not allocated
/// yet. The caller must then call append(), which adds the request or returns an error.
bool append_simple(Qp& qp, const ibv_send_wr& wanted) {
    if (!is_one_of(wanted.opcode, simple_ops) || (wanted.send_flags & ~known_send_flags) != 0 ||
        (qp.type() != IBV_QPT_RC && qp.type() != IBV_QPT_UC) || qp.sends.full() ||
        static_cast<std::uint32_t>(wanted.num_sge) - 1 >= qp.init.cap.max_send_sge) {
        return false;
    }
    const std::uint64_t position = qp.sends.end();
    const bool is_inline = (wanted.send_flags & IBV_SEND_INLINE) != 0;
    std::uint64_t length = 0;
    if (!is_inline) {
        if (wanted.num_sge != 1) {
            return false;
        }
        *qp.entries_at(position) = wanted.sg_list[0];
        length = wanted.sg_list[0].length;
    } else {
        const bool allocated = !qp.inline_bytes.empty();
        const std::uint32_t room = allocated ? qp.init.cap.max_inline_data : 0;
        std::byte* const to = allocated ? qp.inline_data(position) : nullptr;
        const ibv_sge* const end = wanted.sg_list + wanted.num_sge;
        // This loop copies inline data before all lengths are checked. If the data is too long, no
        // request is added, so the copied bytes have no effect.
        for (const ibv_sge* entry = wanted.sg_list; entry != end; ++entry) {
            if (entry->length > room - length) {
                return false;
            }
            copy_bytes(to + length, reinterpret_cast<const std::byte*>(entry->addr), entry->length);
            length += entry->length;
        }
    }
    const bool writes =
        wanted.opcode == IBV_WR_RDMA_WRITE || wanted.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    // Load all members of "wanted" before the first store to the request. Otherwise the compiler
    // must assume that a store changes the members that were not loaded yet.
    const std::uint64_t wr_id = wanted.wr_id;
    const ibv_wr_opcode opcode = wanted.opcode;
    const unsigned flags = wanted.send_flags;
    const __be32 imm_data = wanted.imm_data; // not used by the opcodes without immediate data
    const std::uint64_t remote_address = writes ? wanted.wr.rdma.remote_addr : 0;
    const std::uint32_t rkey = writes ? wanted.wr.rdma.rkey : 0;
    SendRequest& request = qp.sends[position];
    request.reset();
    request.wr_id = wr_id;
    request.opcode = opcode;
    request.flags = flags;
    request.imm_data = imm_data;
    request.remote_address = remote_address;
    request.rkey = rkey;
    request.entries = is_inline ? 0 : 1;
    request.is_inline = is_inline;
    request.length = length;
    qp.sends.publish(position + 1);
    return true;
}

int append(Qp& qp, const ibv_send_wr& wanted) {
    if (!has_opcode(qp, wanted.opcode) || !has_valid_flags(qp, wanted.send_flags)) {
        return EINVAL;
    }
    if (qp.sends.full()) {
        return ENOMEM;
    }
    const std::uint64_t position = qp.sends.end();
    SendRequest& request = qp.sends[position];
    request.reset();
    request.wr_id = wanted.wr_id;
    request.opcode = wanted.opcode;
    request.flags = wanted.send_flags;
    if (const int error = set_operation(qp, request, wanted); error != 0) {
        return error;
    }
    if (const int error = set_data(qp, position, wanted); error != 0) {
        return error;
    }
    qp.sends.publish(position + 1);
    return 0;
}

int append(Ring<RecvRequest>& requests, std::uint32_t most_entries, const ibv_recv_wr& wanted) {
    if (wanted.num_sge < 0 || static_cast<std::uint32_t>(wanted.num_sge) > most_entries) {
        return EINVAL;
    }
    if (requests.full()) {
        return ENOMEM;
    }
    RecvRequest& request = requests.push();
    request.wr_id = wanted.wr_id;
    request.entries = static_cast<std::uint32_t>(wanted.num_sge);
    std::copy_n(wanted.sg_list, wanted.num_sge, request.entry.begin());
    return 0;
}

/// Adds the receive requests of a list to the receive queue, until one of them cannot be added.
/// Returns 0 or an errno; @p request then points to the first request that was not added.
int append_list(Ring<RecvRequest>& requests, QueueMemory& memory, std::uint32_t most_entries,
                ibv_recv_wr*& request) {
    if (!requests.allocated()) {
        const auto allocate = [&] { requests.allocate(memory.take(requests.bytes())); };
        if (const int error = allocating(allocate); error != 0) {
            return error;
        }
    }
    for (; request != nullptr; request = request->next) {
        if (const int error = append(requests, most_entries, *request); error != 0) {
            return error;
        }
    }
    return 0;
}

} // namespace

int allocate_sends(Qp& qp) noexcept {
    return qp.sends.allocated() ? 0 : allocating([&] {
        qp.send_entries.resize(qp.sends.places() * qp.init.cap.max_send_sge);
        qp.sends.allocate(qp.memory.take(qp.sends.bytes()));
    });
}

int allocate_inline(Qp& qp) noexcept {
    return !qp.inline_bytes.empty() ? 0 : allocating([&] {
        qp.inline_bytes.resize(qp.sends.places() * qp.init.cap.max_inline_data);
    });
}

std::uint64_t supported_ops(const Device& device, ibv_qp_type type) noexcept {
    std::uint64_t ops = is_reliable(type)        ? reliable_ops
                        : type == IBV_QPT_UC     ? inline_ops | local_ops
                        : type == IBV_QPT_DRIVER ? simple_ops | IBV_QP_EX_WITH_RDMA_READ
                                                 : datagram_ops;
    if (!device.has(SOFTVERBS_FEATURE_MW)) {
        ops &= ~std::uint64_t{IBV_QP_EX_WITH_BIND_MW};
    }
    if (device.attributes.orig_attr.atomic_cap == IBV_ATOMIC_NONE) {
        ops &= ~atomic_ops;
    }
    if (!device.rules.atomic_write) {
        ops &= ~std::uint64_t{IBV_QP_EX_WITH_ATOMIC_WRITE};
    }
    return ops;
}

bool has_opcode(const Qp& qp, ibv_wr_opcode opcode) noexcept {
    // Only the ibv_wr_*() functions can post RDMA requests to an SRD queue pair.
    return is_one_of(opcode, is_datagram(qp.type())
                                 ? datagram_ops
                                 : supported_ops(device_of(qp.qp_base), qp.type()));
}

bool can_be_inline(const Qp& qp, ibv_wr_opcode opcode) noexcept {
    return is_one_of(opcode, qp.srd != nullptr ? datagram_ops : inline_ops);
}

int set_bind(const Qp& qp, SendRequest& request, ibv_mw* mw, std::uint32_t rkey,
             const ibv_mw_bind_info& info) {
    // Only ibv_bind_mw() can bind a type 1 window.
    if (mw == nullptr || mw->type != IBV_MW_TYPE_2) {
        return EINVAL;
    }
    if (!can_bind(qp, info)) {
        return EOPNOTSUPP;
    }
    // The program chooses the bits of the key that ibv_inc_rkey() changes.
    constexpr std::uint32_t chosen = 0xff;
    request.window = static_cast<Mw*>(mw);
    request.rkey = (request.window->last_key & ~chosen) | (rkey & chosen);
    request.invalidate_rkey = mw->rkey;
    request.bind = info;
    return 0;
}

void set_entries(Qp& qp, std::uint64_t position, std::span<const ibv_sge> entries) noexcept {
    SendRequest& request = qp.sends[position];
    request.entries = static_cast<std::uint32_t>(entries.size());
    request.is_inline = false;
    request.length = 0;
    ibv_sge* to = qp.entries_at(position);
    for (const ibv_sge& entry : entries) {
        *to++ = entry;
        request.length += entry.length;
    }
}

bool has_valid_flags(const Qp& qp, unsigned flags) noexcept {
    if (device_of(qp.qp_base).rules.is_efa) {
        constexpr unsigned efa_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
        return (flags & ~efa_flags) == 0 && (qp.signal_all || (flags & IBV_SEND_SIGNALED) != 0);
    }
    return (flags & ~known_send_flags) == 0;
}

int set_destination(const Qp& qp, SendRequest& request, ibv_ah* ah, std::uint32_t remote_qpn,
                    std::uint32_t remote_qkey) noexcept {
    constexpr std::uint32_t controlled = 0x80000000;
    if (ah == nullptr || static_cast<Pd*>(ah->pd)->protection != &qp.pd() ||
        remote_qpn > 0xffffff) {
        return EINVAL;
    }
    request.destination = static_cast<Ah*>(ah)->attributes;
    request.remote_qpn = remote_qpn;
    // If the highest bit of the Q_Key in the work request is set, use the Q_Key of the queue pair
    // instead. The InfiniBand specification reserves Q_Keys with this bit for privileged programs.
    request.remote_qkey = (remote_qkey & controlled) != 0 ? qp.attributes.qkey : remote_qkey;
    return 0;
}

void added(Qp& qp) {
    if (qp.state() == IBV_QPS_ERR || qp.state() == IBV_QPS_SQE) [[unlikely]] {
        try {
            flush_sends(qp);
        } catch (const std::bad_alloc&) {
            // There is no memory for the completions of the remaining requests. The completions in
            // the completion queue are valid. The next call that posts requests flushes the
            // remaining requests.
        }
    } else if (qp.state() == IBV_QPS_RTS) {
        process().engine.posted(qp);
    }
}

int post_send(ibv_qp* native, ibv_send_wr* request, ibv_send_wr** bad) {
    Qp& qp = Qp::of(native);
    const auto batch = lock_batch(qp);
    const Guard guard;
    int error = check_sendable(qp, "ibv_post_send");
    if (error == 0 && !qp.sends.allocated()) [[unlikely]] {
        error = allocate_sends(qp);
    }
    const std::uint64_t before = qp.sends.end();
    while (error == 0 && request != nullptr) {
        error = append_simple(qp, *request) ? 0 : append(qp, *request);
        if (error == 0) {
            request = request->next;
        }
    }
    if (qp.sends.end() != before) {
        added(qp);
    }
    if (error != 0) {
        *bad = request;
    }
    return error;
}

namespace {

/// Returns whether the queue pair type is XRC. Queue pairs of this type have no receive queue, so
/// receive requests cannot be posted to them.
bool is_xrc(ibv_qp_type type) noexcept {
    return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

} // namespace

int post_recv(ibv_qp* native, ibv_recv_wr* request, ibv_recv_wr** bad) {
    Qp& qp = Qp::of(native);
    const Guard guard;
    int error = enter("ibv_post_recv", context_of(*native));
    if (error == 0 && qp.state() == IBV_QPS_ERR && device_of(qp.qp_base).rules.is_efa) {
        error = EINVAL; // as in libefa
    }
    if (error == 0 &&
        (qp.state() == IBV_QPS_RESET || qp.shared_queue != nullptr || is_xrc(qp.type()))) {
        error = EINVAL;
    }
    if (error == 0) {
        error = append_list(qp.receives, qp.memory, qp.init.cap.max_recv_sge, request);
    }
    if (qp.state() == IBV_QPS_ERR) [[unlikely]] {
        try {
            flush_receives(qp);
        } catch (const std::bad_alloc&) {
            // Some receive requests are not flushed, because there is no memory for their
            // completions. The next call that posts receives flushes them.
        }
    }
    if (error != 0) {
        *bad = request;
    }
    return error;
}

int post_srq_recv(ibv_srq* native, ibv_recv_wr* request, ibv_recv_wr** bad) {
    Srq& srq = *static_cast<Srq*>(native);
    const Guard guard;
    int error = enter("ibv_post_srq_recv", context_of(*native));
    if (error == 0) {
        error = append_list(srq.requests, srq.memory, srq.max_sge, request);
    }
    if (error != 0) {
        *bad = request;
    }
    return error;
}

int bind_mw(ibv_qp* native, ibv_mw* mw, ibv_mw_bind* bind) {
    Qp& qp = Qp::of(native);
    const auto batch = lock_batch(qp);
    const Guard guard;
    if (const int error = check_sendable(qp, "ibv_bind_mw"); error != 0) {
        return error;
    }
    const bool valid = mw->type == IBV_MW_TYPE_1 && has_opcode(qp, IBV_WR_BIND_MW) &&
                       has_valid_flags(qp, bind->send_flags);
    int error = valid ? check_type_1_bind(qp, bind->bind_info) : EINVAL;
    if (error == 0) {
        error = allocate_sends(qp);
    }
    if (error == 0 && qp.sends.full()) {
        error = ENOMEM;
    }
    if (error != 0) {
        errno = error;
        return error;
    }
    SendRequest& request = qp.sends.push();
    request.reset();
    request.wr_id = bind->wr_id;
    request.opcode = IBV_WR_BIND_MW;
    request.flags = bind->send_flags;
    request.window = static_cast<Mw*>(mw);
    request.bind = bind->bind_info;
    // The previous binding and its key stay valid until the request is executed.
    request.rkey = mw->rkey = request.window->last_key = ibv_inc_rkey(request.window->last_key);
    added(qp);
    return 0;
}

int poll_cq(ibv_cq* native, int entries, ibv_wc* completions) {
    Cq& cq = Cq::of(native);
    if (entries < 0) {
        return -1;
    }
    const Guard guard;
    if (cq.taken == cq.pushed) {
        process().engine.progress();
    }
    return take(cq, {completions, static_cast<std::size_t>(entries)});
}

int req_notify_cq(ibv_cq* native, int solicited_only) {
    const Guard guard;
    if (const int error = enter("ibv_req_notify_cq", context_of(*native)); error != 0) {
        return error;
    }
    if (solicited_only != 0 && device_of(*native).rules.is_efa) {
        return EOPNOTSUPP; // as in libefa
    }
    int error = 0;
    try {
        error = request_notification(Cq::of(native), solicited_only != 0);
    } catch (const std::bad_alloc&) {
        error = ENOMEM;
    }
    // After ibv_req_notify_cq(), the program usually blocks in ibv_get_cq_event() or poll(2).
    // softverbs cannot detect a call of poll(2). Therefore wake the agent (background) thread now,
    // which receives packets while the program sleeps.
    process().engine.program_sleeps();
    return error;
}

} // namespace softverbs
