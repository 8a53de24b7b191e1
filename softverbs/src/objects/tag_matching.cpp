// SPDX-License-Identifier: BSD-3-Clause
#include "objects/tag_matching.hpp"

#include <endian.h>
#include <errno.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "objects/posting.hpp"
#include "objects/process.hpp"

namespace softverbs {

namespace {

constexpr int known_op_flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;

/// If @p operation has the flag IBV_OPS_TM_SYNC, stores how many unexpected messages (without a
/// matching tagged buffer) the program has handled. If the program has handled all unexpected
/// messages, enables all tagged buffers.
void synchronize(TagList& list, const ibv_ops_wr& operation) {
    if ((operation.flags & IBV_OPS_TM_SYNC) != 0) {
        list.handled = operation.tm.unexpected_cnt;
    }
    if (list.handled == list.unexpected) {
        for (TagList::Entry& entry : list.entries) {
            entry.enabled = true;
        }
    }
}

int check(const TagList& list, const ibv_ops_wr& operation) {
    if (operation.opcode < IBV_WR_TAG_ADD || operation.opcode > IBV_WR_TAG_SYNC ||
        (operation.flags & ~known_op_flags) != 0) {
        return EINVAL;
    }
    if (operation.opcode == IBV_WR_TAG_ADD) {
        if (operation.tm.add.num_sge < 0 ||
            static_cast<std::uint32_t>(operation.tm.add.num_sge) > max_tag_sge) {
            return EINVAL;
        }
        if (list.entries.size() == list.max_entries) {
            return ENOMEM;
        }
    }
    return list.operations == list.max_operations ? ENOMEM : 0;
}

void add(TagList& list, ibv_ops_wr& operation) {
    // emplace_back() does not allocate memory, because check() has compared the number of tagged
    // buffers with the reserved capacity.
    TagList::Entry& entry = list.entries.emplace_back();
    entry.handle = operation.tm.handle = list.next_handle++;
    entry.tag = operation.tm.add.tag;
    entry.mask = operation.tm.add.mask;
    entry.enabled = list.handled == list.unexpected;
    entry.request.wr_id = operation.tm.add.recv_wr_id;
    entry.request.entries = static_cast<std::uint32_t>(operation.tm.add.num_sge);
    std::copy_n(operation.tm.add.sg_list, operation.tm.add.num_sge, entry.request.entry.begin());
}

ibv_wc_status execute(TagList& list, ibv_ops_wr& operation) {
    synchronize(list, operation);
    if (operation.opcode == IBV_WR_TAG_ADD) {
        add(list, operation);
    } else if (operation.opcode == IBV_WR_TAG_DEL &&
               std::erase_if(list.entries, [&](const TagList::Entry& entry) {
                   return entry.handle == operation.tm.handle;
               }) == 0) {
        return IBV_WC_TM_ERR; // no such buffer: for example, a message has consumed it
    }
    return IBV_WC_SUCCESS;
}

ibv_wc_opcode completed_opcode(ibv_ops_wr_opcode opcode) noexcept {
    switch (opcode) {
        case IBV_WR_TAG_ADD:
            return IBV_WC_TM_ADD;
        case IBV_WR_TAG_DEL:
            return IBV_WC_TM_DEL;
        default:
            return IBV_WC_TM_SYNC;
    }
}

void complete(Srq& srq, const ibv_ops_wr& operation, ibv_wc_status status) {
    if ((operation.flags & IBV_OPS_SIGNALED) == 0 && status == IBV_WC_SUCCESS) {
        return;
    }
    TagList& list = *srq.tags;
    Completion completion;
    completion.wc.wr_id = operation.wr_id;
    completion.wc.status = status;
    completion.wc.opcode = completed_opcode(operation.opcode);
    if (operation.opcode != IBV_WR_TAG_SYNC && list.handled != list.unexpected) {
        completion.wc.wc_flags = IBV_WC_TM_SYNC_REQ;
    }
    completion.srq = &srq; // qp stays null, so release_slots() decrements TagList::operations
    ++list.operations;
    push(*srq.queue, completion);
}

/// Frees the oldest entries of the send queue if their requests have completed and softverbs itself
/// has added them for the rendezvous of tag matching. The program gets no completions for these
/// requests, so polling does not free their entries.
void free_rendezvous_slots(Ring<SendRequest>& sends) noexcept {
    while (sends.occupied() > sends.size() &&
           (sends[sends.end() - sends.occupied()].flags & rendezvous_flag) != 0) {
        sends.free();
    }
}

SendRequest& add_request(Qp& qp, ibv_wr_opcode opcode) noexcept {
    SendRequest& request = qp.sends.push();
    request.reset();
    request.opcode = opcode;
    request.flags = rendezvous_flag | IBV_SEND_SIGNALED;
    return request;
}

} // namespace

int check_tag_matching(const Context& context, const ibv_srq_init_attr_ex& attributes) {
    constexpr unsigned needed = IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    const ibv_tm_caps& most = context.device->attributes.tm_caps;
    const ibv_tm_cap& wanted = attributes.tm_cap;
    const bool valid = (attributes.comp_mask & needed) == needed && attributes.cq != nullptr &&
                       attributes.cq->context == &context.context && wanted.max_num_tags >= 1 &&
                       wanted.max_num_tags <= most.max_num_tags && wanted.max_ops >= 1 &&
                       wanted.max_ops <= most.max_ops;
    return valid ? 0 : EINVAL;
}

void make_tag_list(Srq& srq, const ibv_srq_init_attr_ex& attributes) {
    srq.tags = std::make_shared<TagList>();
    srq.tags->max_entries = attributes.tm_cap.max_num_tags;
    srq.tags->max_operations = attributes.tm_cap.max_ops;
    srq.tags->entries.reserve(attributes.tm_cap.max_num_tags);
}

std::vector<TagList::Entry>::iterator find_match(TagList& list, std::uint64_t tag) noexcept {
    return std::ranges::find_if(list.entries, [tag](const TagList::Entry& entry) {
        return entry.enabled && (tag & entry.mask) == entry.tag;
    });
}

void add_rendezvous_capacity(ibv_qp_cap& cap) noexcept {
    cap.max_send_wr += rendezvous_requests;
    cap.max_send_sge = std::max(cap.max_send_sge, max_tag_sge);
    cap.max_inline_data = std::max(cap.max_inline_data, std::uint32_t{sizeof(ibv_tmh)});
}

bool can_start_rendezvous(Qp& qp) noexcept {
    if (qp.state() != IBV_QPS_RTS || allocate_sends(qp) != 0 || allocate_inline(qp) != 0) {
        return false;
    }
    free_rendezvous_slots(qp.sends);
    return qp.sends.capacity() - qp.sends.occupied() >= 2;
}

void start_rendezvous(Qp& qp, const RecvRequest& to, const ibv_tmh& message,
                      const ibv_rvh& header) {
    const std::uint32_t length = be32toh(header.len);
    SendRequest& read = add_request(qp, IBV_WR_RDMA_READ);
    read.wr_id = to.wr_id;
    read.remote_address = be64toh(header.va);
    read.rkey = be32toh(header.rkey);
    read.length = length;
    read.entries = to.entries;
    std::copy_n(to.entry.begin(), to.entries, qp.entries(qp.sends.end() - 1).begin());
    if (to.entries != 0) {
        qp.entries(qp.sends.end() - 1)[0].length = length;
    }
    SendRequest& fin = add_request(qp, IBV_WR_SEND);
    fin.flags |= IBV_SEND_FENCE; // send the FIN message only after the RDMA read has completed
    fin.is_inline = true;
    fin.length = sizeof message;
    ibv_tmh answer = message;
    answer.opcode = IBV_TMH_FIN;
    std::memcpy(qp.inline_data(qp.sends.end() - 1), &answer, sizeof answer);
    added(qp);
}

void complete_rendezvous(Qp& qp, ibv_wc_status status) {
    const SendRequest& request = qp.sends.front();
    const bool is_read = request.opcode == IBV_WR_RDMA_READ;
    Completion completion;
    completion.wc.wr_id = request.wr_id;
    completion.wc.status = status == IBV_WC_SUCCESS ? status : IBV_WC_TM_RNDV_INCOMPLETE;
    completion.wc.opcode = IBV_WC_TM_RECV;
    completion.wc.byte_len = static_cast<std::uint32_t>(request.length);
    completion.wc.wc_flags = IBV_WC_TM_DATA_VALID;
    completion.wc.qp_num = qp.number();
    qp.sends.pop();
    free_rendezvous_slots(qp.sends);
    if (is_read) {
        push(*qp.recv_queue, completion);
    }
}

int post_srq_ops(ibv_srq* native, ibv_ops_wr* operation, ibv_ops_wr** bad) {
    Srq& srq = *static_cast<Srq*>(native);
    const Guard guard;
    int error = enter("ibv_post_srq_ops", context_of(*native));
    if (error == 0 && srq.tags == nullptr) {
        error = EINVAL;
    }
    while (error == 0 && operation != nullptr) {
        error = check(*srq.tags, *operation);
        if (error == 0) {
            complete(srq, *operation, execute(*srq.tags, *operation));
            operation = operation->next;
        }
    }
    if (error != 0) {
        *bad = operation;
    }
    return error;
}

} // namespace softverbs
