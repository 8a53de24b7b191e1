// SPDX-License-Identifier: BSD-3-Clause
// rig_check DEVICE [leave]  Imports a dma-buf and uses device memory of the device, and gives both
// back. With "leave", ends by a signal while they are in use, for the kernel to clear away. Plain C
// on plain verbs, so that a fault here is the rig's and not the library's; what the memory holds is
// compared by the tests of the library.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/dma-heap.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SIZE = 8192 };

static void require(int holds, const char* what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static int module_count(const char* name) {
    char path[128];
    snprintf(path, sizeof(path), "/sys/module/rdmabuf_rig/parameters/%s", name);
    FILE* file = fopen(path, "re");
    int count = -1;
    require(file != NULL && fscanf(file, "%d", &count) == 1, path);
    fclose(file);
    return count;
}

static struct ibv_context* open_device(const char* name) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    struct ibv_context* context = NULL;
    for (int i = 0; list != NULL && list[i] != NULL && context == NULL; i++) {
        if (strcmp(ibv_get_device_name(list[i]), name) == 0) {
            context = ibv_open_device(list[i]);
        }
    }
    ibv_free_device_list(list);
    return context;
}

int main(int argc, char** argv) {
    struct ibv_context* context = argc > 1 ? open_device(argv[1]) : NULL;
    if (context == NULL) {
        fprintf(stderr, "usage: %s DEVICE [leave] (or the device cannot be opened)\n", argv[0]);
        return 2;
    }
    struct ibv_pd* pd = ibv_alloc_pd(context);
    require(pd != NULL, "ibv_alloc_pd");

    int heap = open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC);
    struct dma_heap_allocation_data data = {.len = SIZE, .fd_flags = O_RDWR | O_CLOEXEC};
    require(heap >= 0 && ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &data) == 0, "dma_heap");
    close(heap);
    struct ibv_mr* imported =
        ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, (int)data.fd, IBV_ACCESS_LOCAL_WRITE);
    require(imported != NULL, "ibv_reg_dmabuf_mr");
    close((int)data.fd); // the registration holds the buffer itself
    require(module_count("imports") == 1, "one import");

    struct ibv_alloc_dm_attr attr = {.length = SIZE};
    struct ibv_dm* dm = ibv_alloc_dm(context, &attr);
    require(dm != NULL, "ibv_alloc_dm");
    struct ibv_mr* mr =
        ibv_reg_dm_mr(pd, dm, 0, SIZE, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
    require(mr != NULL, "ibv_reg_dm_mr");
    require(module_count("device_memories") == 1, "one device memory");
    unsigned char in[SIZE];
    unsigned char out[SIZE] = {0};
    memset(in, 0x5a, sizeof(in));
    require(ibv_memcpy_to_dm(dm, 0, in, SIZE) == 0, "ibv_memcpy_to_dm");
    require(ibv_memcpy_from_dm(out, dm, 0, SIZE) == 0, "ibv_memcpy_from_dm");
    require(memcmp(in, out, SIZE) == 0, "the bytes of the device memory");
    if (argc > 2) {
        raise(SIGKILL);
    }

    require(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr of device memory");
    require(ibv_free_dm(dm) == 0, "ibv_free_dm");
    require(ibv_dereg_mr(imported) == 0, "ibv_dereg_mr of a dma-buf");
    require(module_count("imports") == 0 && module_count("device_memories") == 0, "none is left");
    require(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0, "ibv_close_device");
    printf("rig_check: passed on %s\n", argv[1]);
    return 0;
}
