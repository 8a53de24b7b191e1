// SPDX-License-Identifier: BSD-3-Clause
#include "null_device.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static int post_send(struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad) {
    (void)qp, (void)wr, (void)bad;
    return 0;
}

static int post_recv(struct ibv_qp* qp, struct ibv_recv_wr* wr, struct ibv_recv_wr** bad) {
    (void)qp, (void)wr, (void)bad;
    return 0;
}

static int poll_cq(struct ibv_cq* cq, int count, struct ibv_wc* wc) {
    (void)cq;
    for (int i = 0; i < count; ++i) {
        wc[i].status = IBV_WC_SUCCESS;
    }
    return count;
}

static struct null_device* device_of(struct ibv_cq_ex* cq) {
    return (struct null_device*)((char*)cq - offsetof(struct null_device, cqx));
}
static int next_poll(struct ibv_cq_ex* cq) {
    return --device_of(cq)->left > 0 ? 0 : ENOENT;
}
// Starts a batch of 32 completions, the number that the loops read from one batch (batch_size).
static int start_poll(struct ibv_cq_ex* cq, struct ibv_poll_cq_attr* attributes) {
    device_of(cq)->left = 32;
    return attributes->comp_mask != 0 ? EINVAL : 0;
}
static void end_poll(struct ibv_cq_ex* cq) {
    (void)cq;
}
static uint32_t read_byte_len(struct ibv_cq_ex* cq) {
    (void)cq;
    return 64;
}
static uint64_t read_completion_ts(struct ibv_cq_ex* cq) {
    (void)cq;
    return 1;
}

static void wr_start(struct ibv_qp_ex* qp) {
    (void)qp;
}
static int wr_complete(struct ibv_qp_ex* qp) {
    (void)qp;
    return 0;
}
static void wr_rdma_write(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
    (void)qp, (void)rkey, (void)address;
}
static void wr_set_sge(struct ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
    (void)qp, (void)lkey, (void)address, (void)length;
}

void null_device_init(struct null_device* d) {
    memset(d, 0, sizeof(*d));
    d->context.device = &d->device;
    d->context.ops.post_send = post_send;
    d->context.ops.post_recv = post_recv;
    d->context.ops.poll_cq = poll_cq;
    d->pd.context = &d->context;
    d->cq.context = &d->context;
    d->qpx.qp_base.context = &d->context;
    d->qpx.qp_base.pd = &d->pd;
    d->qpx.qp_base.send_cq = &d->cq;
    d->qpx.qp_base.recv_cq = &d->cq;
    d->cqx.context = &d->context;
    d->cqx.start_poll = start_poll;
    d->cqx.next_poll = next_poll;
    d->cqx.end_poll = end_poll;
    d->cqx.read_byte_len = read_byte_len;
    d->cqx.read_completion_ts = read_completion_ts;
    d->qpx.wr_start = wr_start;
    d->qpx.wr_complete = wr_complete;
    d->qpx.wr_rdma_write = wr_rdma_write;
    d->qpx.wr_set_sge = wr_set_sge;
}
