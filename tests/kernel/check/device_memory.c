// SPDX-License-Identifier: BSD-3-Clause
// Device memory: allocated, copied, registered, reached over RDMA, and refused where it must be.
#include "check.h"

enum { PAGE = 4096, CAPACITY = 8 << 20 };

static struct ibv_dm* alloc(struct ibv_context* context, size_t length, uint32_t log_align) {
    struct ibv_alloc_dm_attr attr = {.length = length, .log_align_req = log_align};
    return ibv_alloc_dm(context, &attr);
}

static void check_allocation(struct ibv_context* context) {
    struct ibv_device_attr_ex attr;
    CHECK(ibv_query_device_ex(context, NULL, &attr) == 0);
    CHECK(attr.max_dm_size == CAPACITY);

    CHECK_REFUSED(alloc(context, 0, 0), EINVAL);
    CHECK_REFUSED(alloc(context, PAGE, 13), EINVAL);
    CHECK_REFUSED(alloc(context, CAPACITY + 1, 0), ENOMEM);

    // What is given counts in pages, and giving it back makes room.
    struct ibv_dm* most = alloc(context, CAPACITY - PAGE, 12);
    struct ibv_dm* last = alloc(context, 1, 0);
    REQUIRE(most != NULL && last != NULL);
    CHECK(module_count("device_memories") == 2);
    CHECK_REFUSED(alloc(context, 1, 0), ENOMEM);
    CHECK(ibv_free_dm(last) == 0);
    last = alloc(context, PAGE, 6);
    REQUIRE(last != NULL);
    CHECK(ibv_free_dm(last) == 0);
    CHECK(ibv_free_dm(most) == 0);
    CHECK(module_count("device_memories") == 0);
}

static void check_copies(struct ibv_context* context) {
    unsigned char in[256];
    unsigned char out[256 + 1];
    struct ibv_dm* dm = alloc(context, 200, 0);
    REQUIRE(dm != NULL);
    CHECK(ibv_memcpy_from_dm(out, dm, 0, 200) == 0);
    CHECK(all_are(out, 200, 0));
    fill(in, sizeof(in), 7);
    CHECK(ibv_memcpy_to_dm(dm, 4, in, 196) == 0);
    CHECK(ibv_memcpy_from_dm(out + 1, dm, 4, 196) == 0); // the host side needs no alignment
    CHECK(memcmp(in, out + 1, 196) == 0);
    CHECK(ibv_memcpy_to_dm(dm, 200, in, 0) == 0);

    CHECK(ibv_memcpy_to_dm(dm, 0, in, 204) == EFAULT);
    CHECK(ibv_memcpy_from_dm(out, dm, 204, 0) == EFAULT);
    CHECK(ibv_memcpy_from_dm(out, dm, UINT64_MAX - 3, 8) == EFAULT);
    CHECK(ibv_memcpy_to_dm(dm, 2, in, 4) == EINVAL);
    CHECK(ibv_memcpy_from_dm(out, dm, 0, 6) == EINVAL);
    CHECK(ibv_free_dm(dm) == 0);
}

static void check_registration(struct loop* loop) {
    const unsigned access = ALL_ACCESS | IBV_ACCESS_ZERO_BASED;
    struct ibv_dm* dm = alloc(loop->context, 3 * PAGE, 0);
    REQUIRE(dm != NULL);
    CHECK_REFUSED(ibv_reg_dm_mr(loop->pd, dm, 0, PAGE, ALL_ACCESS), EINVAL);
    CHECK_REFUSED(ibv_reg_dm_mr(loop->pd, dm, 0, PAGE, access | IBV_ACCESS_RELAXED_ORDERING),
                  EINVAL);
    CHECK_REFUSED(ibv_reg_dm_mr(loop->pd, dm, 0, 3 * PAGE + 4, access), EINVAL);
    CHECK_REFUSED(ibv_reg_dm_mr(loop->pd, dm, PAGE, 3 * PAGE, access), EINVAL);
    CHECK_REFUSED(ibv_reg_dm_mr(loop->pd, dm, 0, 0, access), EINVAL);
    CHECK_REFUSED(ibv_reg_dm_mr(loop->pd, dm, 64, PAGE, access), EINVAL); // rxe's restriction

    struct ibv_mr* mr = ibv_reg_dm_mr(loop->pd, dm, PAGE, PAGE, access);
    REQUIRE(mr != NULL);
    CHECK(ibv_free_dm(dm) == EBUSY);

    unsigned char whole[3 * PAGE];
    fill(loop->buffer, PAGE, 9);
    CHECK(loop_rdma(loop, IBV_WR_RDMA_WRITE, PAGE, 0, mr->rkey) == IBV_WC_SUCCESS);
    CHECK(ibv_memcpy_from_dm(whole, dm, 0, sizeof(whole)) == 0);
    CHECK(memcmp(whole + PAGE, loop->buffer, PAGE) == 0);
    CHECK(all_are(whole, PAGE, 0) && all_are(whole + 2 * PAGE, PAGE, 0));

    uint64_t counter = 40;
    CHECK(ibv_memcpy_to_dm(dm, PAGE + 8, &counter, sizeof(counter)) == 0);
    CHECK(loop_fetch_add(loop, 2, 8, mr->rkey) == IBV_WC_SUCCESS);
    CHECK(memcmp(loop->buffer, &counter, sizeof(counter)) == 0);
    CHECK(ibv_memcpy_from_dm(&counter, dm, PAGE + 8, sizeof(counter)) == 0);
    CHECK(counter == 42);

    fill(whole, PAGE, 11);
    CHECK(ibv_memcpy_to_dm(dm, PAGE, whole, PAGE) == 0);
    CHECK(loop_rdma(loop, IBV_WR_RDMA_READ, PAGE, 0, mr->rkey) == IBV_WC_SUCCESS);
    CHECK(memcmp(loop->buffer, whole, PAGE) == 0);

    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_free_dm(dm) == 0);
}

void check_device_memory(struct ibv_context* context) {
    check_allocation(context);
    check_copies(context);
    struct loop loop = loop_open(context, PAGE);
    check_registration(&loop);
    loop_close(&loop);
}
