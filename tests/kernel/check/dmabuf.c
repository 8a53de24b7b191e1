// SPDX-License-Identifier: BSD-3-Clause
// dma-bufs of three exporters: registered, written and read over RDMA, and refused where they must
// be.
#define _GNU_SOURCE
#include <fcntl.h>
#include <libdrm/drm.h>
#include <libdrm/drm_mode.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum { BUFFER_SIZE = 1 << 20, PAGE = 4096 };

static int memfd_of(off_t size) {
    int fd = memfd_create("check", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, size) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return fd;
}

static int make_vgem(void) {
    int card = open("/dev/dri/card0", O_RDWR | O_CLOEXEC);
    struct drm_mode_create_dumb dumb = {.width = 1024, .height = BUFFER_SIZE / 4096, .bpp = 32};
    CHECK(card >= 0 && ioctl(card, DRM_IOCTL_MODE_CREATE_DUMB, &dumb) == 0);
    struct drm_prime_handle prime = {.handle = dumb.handle, .flags = DRM_CLOEXEC | DRM_RDWR};
    CHECK(ioctl(card, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime) == 0);
    close(card);
    return prime.fd;
}

static int make_dma_heap(void) {
    int heap = open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC);
    struct dma_heap_allocation_data data = {.len = BUFFER_SIZE, .fd_flags = O_RDWR | O_CLOEXEC};
    CHECK(heap >= 0 && ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &data) == 0);
    close(heap);
    return (int)data.fd;
}

static int make_udmabuf(void) {
    int memory = memfd_of(BUFFER_SIZE);
    int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
    struct udmabuf_create create = {
        .memfd = (uint32_t)memory, .flags = UDMABUF_FLAGS_CLOEXEC, .size = BUFFER_SIZE};
    int fd = ioctl(device, UDMABUF_CREATE, &create);
    CHECK(fd >= 0);
    close(device);
    close(memory);
    return fd;
}

// A range that starts and ends within pages, at an address of its own.
static void check_transfers(struct loop* loop, int fd, unsigned seed) {
    enum { OFFSET = 2 * PAGE + 104, LENGTH = 300000 };
    const uint64_t iova = UINT64_C(0x10000000000) + 104;
    unsigned char* map = mmap(NULL, BUFFER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(map != MAP_FAILED);
    memset(map, 0x5a, BUFFER_SIZE);

    int before = module_count("imports");
    struct ibv_mr* mr = ibv_reg_dmabuf_mr(loop->pd, OFFSET, LENGTH, iova, fd, ALL_ACCESS);
    REQUIRE(mr != NULL);
    CHECK(module_count("imports") == before + 1);
    close(fd); // the registration holds the buffer itself

    fill(loop->buffer, LENGTH, seed);
    CHECK(loop_rdma(loop, IBV_WR_RDMA_WRITE, LENGTH, iova, mr->rkey) == IBV_WC_SUCCESS);
    CHECK(memcmp(map + OFFSET, loop->buffer, LENGTH) == 0);
    CHECK(all_are(map, OFFSET, 0x5a));
    CHECK(all_are(map + OFFSET + LENGTH, BUFFER_SIZE - OFFSET - LENGTH, 0x5a));

    fill(map + OFFSET, LENGTH, seed + 1);
    memset(loop->buffer, 0, loop->size);
    CHECK(loop_rdma(loop, IBV_WR_RDMA_READ, LENGTH, iova, mr->rkey) == IBV_WC_SUCCESS);
    CHECK(memcmp(map + OFFSET, loop->buffer, LENGTH) == 0);
    CHECK(all_are(loop->buffer + LENGTH, loop->size - LENGTH, 0));

    uint64_t value = 40;
    memcpy(map + OFFSET, &value, sizeof(value));
    CHECK(loop_fetch_add(loop, 2, iova, mr->rkey) == IBV_WC_SUCCESS);
    CHECK(memcmp(loop->buffer, &value, sizeof(value)) == 0);
    value = 42;
    CHECK(memcmp(map + OFFSET, &value, sizeof(value)) == 0);

    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(module_count("imports") == before);
    munmap(map, BUFFER_SIZE);
}

static void check_refusals(struct ibv_pd* pd) {
    const int rw = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    int fd = make_udmabuf();
    int memory = memfd_of(PAGE);
    int before = module_count("imports");

    CHECK_REFUSED(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, -1, rw), EBADF);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0), EBADF);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, memory, rw), EINVAL);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pd, 0, 0, 0, fd, rw), EINVAL);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pd, 0, BUFFER_SIZE + 1, 0, fd, rw), EINVAL);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pd, BUFFER_SIZE, PAGE, 0, fd, rw), EINVAL);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pd, UINT64_MAX - PAGE + 1, 2 * PAGE, 0, fd, rw), EINVAL);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pd, 8, PAGE, 16, fd, rw), EINVAL);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, fd, rw | IBV_ACCESS_ON_DEMAND), EINVAL);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, fd, rw | IBV_ACCESS_ZERO_BASED), EINVAL);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, fd, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    CHECK(module_count("imports") == before);

    // An optional flag is ignored, not refused; and one buffer may be registered twice.
    struct ibv_mr* whole =
        ibv_reg_dmabuf_mr(pd, 0, BUFFER_SIZE, 0, fd, rw | IBV_ACCESS_RELAXED_ORDERING);
    struct ibv_mr* part = ibv_reg_dmabuf_mr(pd, PAGE, 1, 0, fd, IBV_ACCESS_REMOTE_READ);
    REQUIRE(whole != NULL && part != NULL);
    CHECK(module_count("imports") == before + 2);
    CHECK(ibv_dereg_mr(whole) == 0);
    CHECK(ibv_dereg_mr(part) == 0);
    close(memory);
    close(fd);
}

// The keys guard the range and the rights; a violation costs the queue pair, so each has its own.
static void check_protection(struct ibv_context* context) {
    int fd = make_dma_heap();
    struct loop loop = loop_open(context, PAGE);
    struct ibv_mr* mr = ibv_reg_dmabuf_mr(loop.pd, PAGE, PAGE, 0, fd, ALL_ACCESS);
    REQUIRE(mr != NULL);
    CHECK(loop_rdma(&loop, IBV_WR_RDMA_WRITE, PAGE, 8, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
    CHECK(ibv_dereg_mr(mr) == 0);
    loop_close(&loop);

    loop = loop_open(context, PAGE);
    mr = ibv_reg_dmabuf_mr(loop.pd, PAGE, PAGE, 0, fd, IBV_ACCESS_REMOTE_READ);
    REQUIRE(mr != NULL);
    CHECK(loop_rdma(&loop, IBV_WR_RDMA_WRITE, 8, 0, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
    CHECK(ibv_dereg_mr(mr) == 0);
    loop_close(&loop);
    close(fd);
}

void check_dmabuf(struct ibv_context* context) {
    struct loop loop = loop_open(context, BUFFER_SIZE);
    check_transfers(&loop, make_vgem(), 1);
    check_transfers(&loop, make_dma_heap(), 3);
    check_transfers(&loop, make_udmabuf(), 5);
    check_refusals(loop.pd);
    loop_close(&loop);
    check_protection(context);
}
