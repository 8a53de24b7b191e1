// SPDX-License-Identifier: BSD-3-Clause
#include "null_device.h"

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
    d->qpx.wr_start = wr_start;
    d->qpx.wr_complete = wr_complete;
    d->qpx.wr_rdma_write = wr_rdma_write;
    d->qpx.wr_set_sge = wr_set_sge;
}
