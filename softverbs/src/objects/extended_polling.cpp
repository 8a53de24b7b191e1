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
    cq.current = take_one(cq);
    cq.status = cq.current.wc.status;
    cq.wr_id = cq.current.wc.wr_id;
    return 0;
}

void end_poll(ibv_cq_ex* native) {
    if (Cq& cq = Cq::of(native); cq.single_threaded) {
        cq.polled = false;
    } else {
        cq.poll_lock.unlock();
    }
}

int start_poll(ibv_cq_ex* native, ibv_poll_cq_attr* attributes) {
    Cq& cq = Cq::of(native);
    if (attributes != nullptr && attributes->comp_mask != 0) {
        return EINVAL;
    }
    if (!cq.single_threaded) {
        cq.poll_lock.lock();
    } else if (cq.polled.exchange(true)) {
        // Two threads poll a queue that the program has declared single-threaded: count a
        // violation. On a real device, the queue would be polled without a lock.
        const Guard guard;
        ++process().violations;
    }
    int error = 0;
    {
        const Guard guard;
        if (cq.taken == cq.pushed) {
            process().engine.progress();
        }
        error = advance(cq);
    }
    // If ibv_start_poll() fails, end the poll now, because the program does not call
    // ibv_end_poll() after a failure.
    if (error != 0) {
        end_poll(native);
    }
    return error;
}

int next_poll(ibv_cq_ex* cq) {
    const Guard guard;
    return advance(Cq::of(cq));
}

template <auto member>
auto read(ibv_cq_ex* cq) {
    return Cq::of(cq).current.wc.*member;
}

} // namespace

void set_polling_functions(Cq& cq) {
    cq.start_poll = start_poll;
    cq.next_poll = next_poll;
    cq.end_poll = end_poll;
    cq.read_opcode = read<&ibv_wc::opcode>;
    cq.read_vendor_err = read<&ibv_wc::vendor_err>;
    cq.read_wc_flags = read<&ibv_wc::wc_flags>;
    // As in libmlx5 and libefa, the other functions are set only if the program has requested their
    // fields. A program that reads another field calls a null pointer.
    const auto set = [&cq](auto& function, std::uint32_t flag, auto read) {
        if ((cq.wc_flags & flag) != 0) {
            function = read;
        }
    };
    set(cq.read_byte_len, IBV_WC_EX_WITH_BYTE_LEN, read<&ibv_wc::byte_len>);
    set(cq.read_imm_data, IBV_WC_EX_WITH_IMM, read<&ibv_wc::imm_data>);
    set(cq.read_qp_num, IBV_WC_EX_WITH_QP_NUM, read<&ibv_wc::qp_num>);
    set(cq.read_src_qp, IBV_WC_EX_WITH_SRC_QP, read<&ibv_wc::src_qp>);
    set(cq.read_slid, IBV_WC_EX_WITH_SLID,
        [](ibv_cq_ex* from) { return std::uint32_t{read<&ibv_wc::slid>(from)}; });
    set(cq.read_sl, IBV_WC_EX_WITH_SL, read<&ibv_wc::sl>);
    set(cq.read_dlid_path_bits, IBV_WC_EX_WITH_DLID_PATH_BITS, read<&ibv_wc::dlid_path_bits>);
    set(cq.read_completion_ts, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
        [](ibv_cq_ex* from) { return Cq::of(from).current.timestamp; });
    set(cq.read_completion_wallclock_ns, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
        [](ibv_cq_ex* from) { return Cq::of(from).current.wallclock_ns; });
    set(cq.read_cvlan, IBV_WC_EX_WITH_CVLAN, [](ibv_cq_ex*) { return std::uint16_t{0}; });
    set(cq.read_flow_tag, IBV_WC_EX_WITH_FLOW_TAG, [](ibv_cq_ex*) { return std::uint32_t{0}; });
    set(cq.read_tm_info, IBV_WC_EX_WITH_TM_INFO, [](ibv_cq_ex* from, ibv_wc_tm_info* info) {
        const Completion& completion = Cq::of(from).current;
        *info = {be64toh(completion.tag), be32toh(completion.tag_data)};
    });
}

} // namespace softverbs
