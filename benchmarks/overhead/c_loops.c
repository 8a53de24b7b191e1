// SPDX-License-Identifier: BSD-3-Clause
// The measured loops, as an experienced verbs programmer writes them in C.
#include <errno.h>

#include "loops.h"

static int poll_one(struct ibv_cq* cq) {
    struct ibv_wc wc;
    int count;
    do {
        count = ibv_poll_cq(cq, 1, &wc);
    } while (count == 0);
    return count < 0 || wc.status != IBV_WC_SUCCESS;
}

int c_send_poll(const struct endpoint* e, const struct transfer* t, long iterations) {
    for (long i = 0; i < iterations; ++i) {
        struct ibv_send_wr wr = {
            .wr_id = (uint64_t)i,
            .sg_list = (struct ibv_sge*)&t->local,
            .num_sge = 1,
            .opcode = IBV_WR_SEND,
            .send_flags = IBV_SEND_SIGNALED,
        };
        struct ibv_send_wr* bad;
        if (ibv_post_send(e->qp, &wr, &bad) || poll_one(e->cq)) {
            return 1;
        }
    }
    return 0;
}

int c_write_poll(const struct endpoint* e, const struct transfer* t, long iterations) {
    for (long i = 0; i < iterations; ++i) {
        struct ibv_send_wr wr = {
            .wr_id = (uint64_t)i,
            .sg_list = (struct ibv_sge*)&t->local,
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_WRITE,
            .send_flags = IBV_SEND_SIGNALED,
            .wr.rdma = {.remote_addr = t->remote_address, .rkey = t->rkey},
        };
        struct ibv_send_wr* bad;
        if (ibv_post_send(e->qp, &wr, &bad) || poll_one(e->cq)) {
            return 1;
        }
    }
    return 0;
}

int c_fetch_add_poll(const struct endpoint* e, const struct transfer* t, long iterations) {
    for (long i = 0; i < iterations; ++i) {
        struct ibv_send_wr wr = {
            .wr_id = (uint64_t)i,
            .sg_list = (struct ibv_sge*)&t->local,
            .num_sge = 1,
            .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
            .send_flags = IBV_SEND_SIGNALED,
            .wr.atomic = {.remote_addr = t->remote_address, .compare_add = 1, .rkey = t->rkey},
        };
        struct ibv_send_wr* bad;
        if (ibv_post_send(e->qp, &wr, &bad) || poll_one(e->cq)) {
            return 1;
        }
    }
    return 0;
}

int c_post_recv(const struct endpoint* e, const struct transfer* t, long iterations) {
    for (long i = 0; i < iterations; ++i) {
        struct ibv_recv_wr wr = {
            .wr_id = (uint64_t)i, .sg_list = (struct ibv_sge*)&t->local, .num_sge = 1};
        struct ibv_recv_wr* bad;
        if (ibv_post_recv(e->qp, &wr, &bad)) {
            return 1;
        }
    }
    return 0;
}

// Not inlined in C and C++: otherwise the register allocation in the calling loop would affect the
// comparison.
__attribute__((noinline)) static int poll_batch(struct ibv_cq* cq) {
    struct ibv_wc wc[batch_size];
    for (int done = 0; done < batch_size;) {
        const int count = ibv_poll_cq(cq, batch_size, wc);
        if (count < 0) {
            return 1;
        }
        for (int i = 0; i < count; ++i) {
            if (wc[i].status != IBV_WC_SUCCESS) {
                return 1;
            }
        }
        done += count;
    }
    return 0;
}

int c_write_list(const struct endpoint* e, const struct transfer* t, long iterations) {
    for (long i = 0; i < iterations; ++i) {
        struct ibv_send_wr wr[batch_size];
        for (int k = 0; k < batch_size; ++k) {
            wr[k] = (struct ibv_send_wr){
                .wr_id = (uint64_t)k,
                .next = k + 1 < batch_size ? &wr[k + 1] : NULL,
                .sg_list = (struct ibv_sge*)&t->local,
                .num_sge = 1,
                .opcode = IBV_WR_RDMA_WRITE,
                .send_flags = IBV_SEND_SIGNALED,
                .wr.rdma = {.remote_addr = t->remote_address, .rkey = t->rkey},
            };
        }
        struct ibv_send_wr* bad;
        if (ibv_post_send(e->qp, wr, &bad) || poll_batch(e->cq)) {
            return 1;
        }
    }
    return 0;
}

int c_write_batch(const struct endpoint* e, const struct transfer* t, long iterations) {
    for (long i = 0; i < iterations; ++i) {
        ibv_wr_start(e->qpx);
        for (int k = 0; k < batch_size; ++k) {
            e->qpx->wr_id = (uint64_t)k;
            e->qpx->wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_rdma_write(e->qpx, t->rkey, t->remote_address);
            ibv_wr_set_sge(e->qpx, t->local.lkey, t->local.addr, t->local.length);
        }
        if (ibv_wr_complete(e->qpx) || poll_batch(e->cq)) {
            return 1;
        }
    }
    return 0;
}

// Not inlined, for the same reason as poll_batch().
__attribute__((noinline)) static int poll_extended(struct ibv_cq_ex* cq, uint64_t* sum) {
    struct ibv_poll_cq_attr attributes = {0};
    int result = ibv_start_poll(cq, &attributes);
    if (result) {
        return result == ENOENT ? 0 : 1;
    }
    do {
        if (cq->status != IBV_WC_SUCCESS) {
            ibv_end_poll(cq);
            return 1;
        }
        *sum += cq->wr_id + ibv_wc_read_byte_len(cq) + ibv_wc_read_completion_ts(cq);
        result = ibv_next_poll(cq);
    } while (!result);
    ibv_end_poll(cq);
    return result == ENOENT ? 0 : 1;
}

int c_poll_extended(const struct endpoint* e, const struct transfer* t, long iterations) {
    uint64_t sum = 0;
    for (long i = 0; i < iterations; ++i) {
        if (poll_extended(e->cqx, &sum)) {
            return 1;
        }
    }
    return sum == (uint64_t)iterations * batch_size * (t->local.length + 1) ? 0 : 1;
}
