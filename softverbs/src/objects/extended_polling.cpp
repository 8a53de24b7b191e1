// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>
#include <errno.h>

#include "objects/completion_queue.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

namespace {

/// Takes the next completion from the completion queue and stores it in Cq::current. Returns 0,
/// ENOENT (the queue is empty) or EIO (the queue has overrun).
int advance(Cq& cq) {
    if (cq.broken) {
        return EIO;
    }
    if (cq.taken == cq.pushed) {
        return ENOENT;
    }
    cq.current = cq.ring[cq.taken++ & cq.mask];
    if (cq.current.has_scatter) [[unlikely]] {
        take_scatter(cq);
    }
    release_slots(cq.current);
    cq.status = cq.current.wc.status;
    cq.wr_id = cq.current.wc.wr_id;
    return 0;
}

int start_poll(ibv_cq_ex* native, ibv_poll_cq_attr* attributes) {
    Cq& cq = Cq::of(native);
    if (attributes != nullptr && attributes->comp_mask != 0) {
        return EINVAL;
    }
    if (!cq.single_threaded) {
        cq.poll_lock.lock();
    }
    int error = 0;
    {
        const Guard guard;
        if (cq.taken == cq.pushed) {
            process().engine.progress();
        }
        error = advance(cq);
    }
    // If ibv_start_poll() fails, unlock Cq::poll_lock now, because the program does not call
    // ibv_end_poll() after a failure.
    if (error != 0 && !cq.single_threaded) {
        cq.poll_lock.unlock();
    }
    return error;
}

int next_poll(ibv_cq_ex* cq) {
    const Guard guard;
    return advance(Cq::of(cq));
}

void end_poll(ibv_cq_ex* native) {
    if (Cq& cq = Cq::of(native); !cq.single_threaded) {
        cq.poll_lock.unlock();
    }
}

const ibv_wc& current(ibv_cq_ex* cq) {
    return Cq::of(cq).current.wc;
}

} // namespace

void set_polling_functions(Cq& cq) {
    cq.start_poll = start_poll;
    cq.next_poll = next_poll;
    cq.end_poll = end_poll;
    // Set all read functions, even those for fields that wc_flags does not request, because a call
    // of a null pointer would crash the program.
    cq.read_opcode = [](ibv_cq_ex* from) { return current(from).opcode; };
    cq.read_vendor_err = [](ibv_cq_ex* from) { return current(from).vendor_err; };
    cq.read_byte_len = [](ibv_cq_ex* from) { return current(from).byte_len; };
    cq.read_imm_data = [](ibv_cq_ex* from) { return current(from).imm_data; };
    cq.read_qp_num = [](ibv_cq_ex* from) { return current(from).qp_num; };
    cq.read_src_qp = [](ibv_cq_ex* from) { return current(from).src_qp; };
    cq.read_wc_flags = [](ibv_cq_ex* from) { return current(from).wc_flags; };
    cq.read_slid = [](ibv_cq_ex* from) { return std::uint32_t{current(from).slid}; };
    cq.read_sl = [](ibv_cq_ex* from) { return current(from).sl; };
    cq.read_dlid_path_bits = [](ibv_cq_ex* from) { return current(from).dlid_path_bits; };
    cq.read_completion_ts = [](ibv_cq_ex* from) { return Cq::of(from).current.timestamp_ns; };
    cq.read_completion_wallclock_ns = [](ibv_cq_ex* from) {
        return Cq::of(from).current.wallclock_ns;
    };
    cq.read_cvlan = [](ibv_cq_ex*) { return std::uint16_t{0}; };
    cq.read_flow_tag = [](ibv_cq_ex*) { return std::uint32_t{0}; };
    cq.read_tm_info = [](ibv_cq_ex* from, ibv_wc_tm_info* info) {
        const Completion& completion = Cq::of(from).current;
        *info = {be64toh(completion.tag), be32toh(completion.tag_data)};
    };
}

} // namespace softverbs
