/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A program that is not linked with libibverbs: it finds each function with dlvsym(3), as NCCL
 * does. With the argument "dlopen" it loads libibverbs.so.1 itself and searches its handle; with
 * "default" it searches RTLD_DEFAULT, where LD_PRELOAD has put libsoftverbs.so. It connects two
 * queue pairs of the first device, writes a message through them, and prints "ok" and the number of
 * bytes that arrived. With the arguments "provider" and the name of a library it only loads that
 * library, whose symbols all have to be found. With the argument "efa" it loads libefa.so.1 and
 * prints the capabilities that efadv_query_device() returns for the first device. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_reg_mr
#undef ibv_query_port

enum { message_bytes = 4096 };

static void* library;

static void* find(const char* name, const char* version) {
    void* const found = dlvsym(library, name, version);
    if (found == NULL) {
        fprintf(stderr, "%s %s: %s\n", name, version, dlerror());
        exit(1);
    }
    return found;
}

static void require(int is_true, const char* what) {
    if (!is_true) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

/* A local variable that is the function of the same name in libibverbs. */
#define FUNCTION(name, version) __typeof__(name)* const name##_ = find(#name, version)

static void connect_to(__typeof__(ibv_modify_qp)* modify, struct ibv_qp* qp, unsigned peer,
                       const struct ibv_port_attr* port) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    require(modify(qp, &attr,
                   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
            "INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.min_rnr_timer = 12;
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr.dlid = port->lid;
    attr.ah_attr.port_num = 1;
    require(modify(qp, &attr,
                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
            "RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    require(modify(qp, &attr,
                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
            "RTS");
}

static int query_efa(void) {
    library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    require(library != NULL, "libibverbs.so.1");
    FUNCTION(ibv_get_device_list, "IBVERBS_1.1");
    FUNCTION(ibv_open_device, "IBVERBS_1.1");
    FUNCTION(ibv_close_device, "IBVERBS_1.1");
    FUNCTION(ibv_free_device_list, "IBVERBS_1.1");
    library = dlopen("libefa.so.1", RTLD_NOW | RTLD_LOCAL);
    require(library != NULL, "libefa.so.1");
    FUNCTION(efadv_query_device, "EFA_1.1");
    require(dlsym(library, "efadv_create_driver_qp") == find("efadv_create_driver_qp", "EFA_1.0"),
            "efadv_create_driver_qp");
    find("efadv_create_cq", "EFA_1.2");
    struct ibv_device** const list = ibv_get_device_list_(NULL);
    require(list != NULL && list[0] != NULL, "no device");
    struct ibv_context* const context = ibv_open_device_(list[0]);
    require(context != NULL, "ibv_open_device");
    ibv_free_device_list_(list);
    struct efadv_device_attr device;
    errno = efadv_query_device_(context, &device, sizeof device);
    require(errno == 0, "efadv_query_device");
    printf("capabilities %#x\n", device.device_caps);
    require(ibv_close_device_(context) == 0, "ibv_close_device");
    return 0;
}

int main(int argc, char** argv) {
    if (argc == 2 && strcmp(argv[1], "efa") == 0) {
        return query_efa();
    }
    if (argc == 3 && strcmp(argv[1], "provider") == 0) {
        library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library == NULL || dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        printf("loaded\n");
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "dlopen") == 0) {
        library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
        require(library != NULL, "dlopen");
    } else if (argc == 2 && strcmp(argv[1], "default") == 0) {
        library = RTLD_DEFAULT;
    } else {
        fprintf(stderr, "usage: %s dlopen|default|provider LIBRARY\n", argv[0]);
        return 2;
    }
    FUNCTION(ibv_get_device_list, "IBVERBS_1.1");
    FUNCTION(ibv_get_device_name, "IBVERBS_1.1");
    FUNCTION(ibv_free_device_list, "IBVERBS_1.1");
    FUNCTION(ibv_open_device, "IBVERBS_1.1");
    FUNCTION(ibv_close_device, "IBVERBS_1.1");
    FUNCTION(ibv_query_port, "IBVERBS_1.1");
    FUNCTION(ibv_alloc_pd, "IBVERBS_1.1");
    FUNCTION(ibv_dealloc_pd, "IBVERBS_1.1");
    FUNCTION(ibv_reg_mr, "IBVERBS_1.1");
    FUNCTION(ibv_reg_mr_iova2, "IBVERBS_1.8");
    FUNCTION(ibv_dereg_mr, "IBVERBS_1.1");
    FUNCTION(ibv_create_cq, "IBVERBS_1.1");
    FUNCTION(ibv_destroy_cq, "IBVERBS_1.1");
    FUNCTION(ibv_create_qp, "IBVERBS_1.1");
    FUNCTION(ibv_destroy_qp, "IBVERBS_1.1");
    FUNCTION(ibv_modify_qp, "IBVERBS_1.1");
    /* A function that softverbs leaves to the real library. */
    FUNCTION(ibv_wc_status_str, "IBVERBS_1.1");

    int count = 0;
    struct ibv_device** const list = ibv_get_device_list_(&count);
    require(list != NULL && count >= 1, "no device");
    printf("device %s\n", ibv_get_device_name_(list[0]));
    struct ibv_context* const context = ibv_open_device_(list[0]);
    require(context != NULL, "ibv_open_device");
    struct ibv_port_attr port;
    memset(&port, 0, sizeof port);
    require(ibv_query_port_(context, 1, (struct _compat_ibv_port_attr*)&port) == 0,
            "ibv_query_port");
    struct ibv_pd* const pd = ibv_alloc_pd_(context);
    require(pd != NULL, "ibv_alloc_pd");

    char* const source = malloc(message_bytes);
    char* const target = calloc(1, message_bytes);
    require(source != NULL && target != NULL, "malloc");
    for (int i = 0; i < message_bytes; ++i) {
        source[i] = (char)(i * 7 + 1);
    }
    struct ibv_mr* const source_mr = ibv_reg_mr_(pd, source, message_bytes, 0);
    struct ibv_mr* const target_mr =
        ibv_reg_mr_iova2_(pd, target, message_bytes, (uintptr_t)target,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    require(source_mr != NULL && target_mr != NULL, "ibv_reg_mr");
    struct ibv_cq* const cq = ibv_create_cq_(context, 16, NULL, NULL, 0);
    require(cq != NULL, "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp* const a = ibv_create_qp_(pd, &init);
    struct ibv_qp* const b = ibv_create_qp_(pd, &init);
    require(a != NULL && b != NULL, "ibv_create_qp");
    connect_to(ibv_modify_qp_, a, b->qp_num, &port);
    connect_to(ibv_modify_qp_, b, a->qp_num, &port);

    struct ibv_sge entry = {(uintptr_t)source, message_bytes, source_mr->lkey};
    struct ibv_send_wr request = {.sg_list = &entry,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_RDMA_WRITE,
                                  .send_flags = IBV_SEND_SIGNALED};
    request.wr.rdma.remote_addr = (uintptr_t)target;
    request.wr.rdma.rkey = target_mr->rkey;
    struct ibv_send_wr* bad = NULL;
    require(ibv_post_send(a, &request, &bad) == 0, "ibv_post_send");
    struct ibv_wc completion;
    int polled = 0;
    while (polled == 0) {
        polled = ibv_poll_cq(cq, 1, &completion);
    }
    require(polled == 1, "ibv_poll_cq");
    if (completion.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "completion: %s\n", ibv_wc_status_str_(completion.status));
        return 1;
    }
    require(memcmp(source, target, message_bytes) == 0, "the bytes differ");

    require(ibv_destroy_qp_(a) == 0 && ibv_destroy_qp_(b) == 0, "ibv_destroy_qp");
    require(ibv_destroy_cq_(cq) == 0, "ibv_destroy_cq");
    require(ibv_dereg_mr_(source_mr) == 0 && ibv_dereg_mr_(target_mr) == 0, "ibv_dereg_mr");
    require(ibv_dealloc_pd_(pd) == 0, "ibv_dealloc_pd");
    require(ibv_close_device_(context) == 0, "ibv_close_device");
    ibv_free_device_list_(list);
    free(source);
    free(target);
    printf("ok %d\n", message_bytes);
    return 0;
}
