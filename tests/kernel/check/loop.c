// SPDX-License-Identifier: BSD-3-Clause
#include <time.h>

#include "check.h"

enum { PORT = 1, DEPTH = 16 };

static void* need(void* object, const char* what) {
    if (object == NULL) {
        perror(what);
        exit(1);
    }
    return object;
}

static void need_zero(int error, const char* what) {
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(error));
        exit(1);
    }
}

static struct ibv_qp* create_qp(struct loop* loop) {
    struct ibv_qp_init_attr init = {
        .send_cq = loop->cq,
        .recv_cq = loop->cq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    return need(ibv_create_qp(loop->pd, &init), "ibv_create_qp");
}

static void connect_qp(struct ibv_qp* qp, uint32_t peer, const union ibv_gid* gid, uint8_t index) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = ALL_ACCESS};
    need_zero(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              "to INIT");

    memset(&attr, 0, sizeof(attr));
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = PORT;
    attr.ah_attr.grh.dgid = *gid;
    attr.ah_attr.grh.sgid_index = index;
    attr.ah_attr.grh.hop_limit = 1;
    need_zero(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              "to RTR");

    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    need_zero(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
              "to RTS");
}

// The GID table's entry for an IPv4 address; the one for the link-local address may still be under
// duplicate detection.
static uint8_t ipv4_gid(struct ibv_context* context, union ibv_gid* gid) {
    static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};
    for (uint8_t index = 0; index < 16; index++) {
        if (ibv_query_gid(context, PORT, index, gid) == 0 &&
            memcmp(gid->raw, prefix, sizeof(prefix)) == 0) {
            return index;
        }
    }
    fprintf(stderr, "%s has no GID of an IPv4 address\n", ibv_get_device_name(context->device));
    exit(1);
}

struct loop loop_open(struct ibv_context* context, size_t size) {
    struct loop loop = {.context = context, .size = size};
    loop.pd = need(ibv_alloc_pd(context), "ibv_alloc_pd");
    loop.cq = need(ibv_create_cq(context, DEPTH, NULL, NULL, 0), "ibv_create_cq");
    loop.buffer = need(aligned_alloc(4096, size), "aligned_alloc");
    loop.mr = need(ibv_reg_mr(loop.pd, loop.buffer, size, ALL_ACCESS), "ibv_reg_mr");
    loop.near = create_qp(&loop);
    loop.far = create_qp(&loop);
    union ibv_gid gid;
    uint8_t index = ipv4_gid(context, &gid);
    connect_qp(loop.near, loop.far->qp_num, &gid, index);
    connect_qp(loop.far, loop.near->qp_num, &gid, index);
    return loop;
}

void loop_close(struct loop* loop) {
    CHECK(ibv_destroy_qp(loop->near) == 0);
    CHECK(ibv_destroy_qp(loop->far) == 0);
    CHECK(ibv_dereg_mr(loop->mr) == 0);
    CHECK(ibv_destroy_cq(loop->cq) == 0);
    CHECK(ibv_dealloc_pd(loop->pd) == 0);
    free(loop->buffer);
}

static enum ibv_wc_status post_and_wait(struct loop* loop, struct ibv_send_wr* wr) {
    struct ibv_send_wr* bad;
    need_zero(ibv_post_send(loop->near, wr, &bad), "ibv_post_send");
    time_t end = time(NULL) + 30;
    struct ibv_wc wc;
    while (ibv_poll_cq(loop->cq, 1, &wc) == 0) {
        if (time(NULL) > end) {
            fprintf(stderr, "no completion within 30 s\n");
            exit(1);
        }
    }
    return wc.status;
}

enum ibv_wc_status loop_rdma(struct loop* loop, enum ibv_wr_opcode opcode, size_t length,
                             uint64_t remote, uint32_t rkey) {
    struct ibv_sge sge = {(uintptr_t)loop->buffer, (uint32_t)length, loop->mr->lkey};
    struct ibv_send_wr wr = {
        .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    return post_and_wait(loop, &wr);
}

enum ibv_wc_status loop_fetch_add(struct loop* loop, uint64_t add, uint64_t remote, uint32_t rkey) {
    struct ibv_sge sge = {(uintptr_t)loop->buffer, sizeof(uint64_t), loop->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                             .send_flags = IBV_SEND_SIGNALED};
    wr.wr.atomic.remote_addr = remote;
    wr.wr.atomic.rkey = rkey;
    wr.wr.atomic.compare_add = add;
    return post_and_wait(loop, &wr);
}
