// SPDX-License-Identifier: BSD-3-Clause
// rig_check DEVICE [leave]  Checks the rig's device. With "leave", ends by a signal while dma-bufs
// and device memory are in use, for the kernel to clear away.
#include <signal.h>

#include "check.h"

int failures = 0;

int module_count(const char* name) {
    char path[128];
    snprintf(path, sizeof(path), "/sys/module/rdmabuf_rig/parameters/%s", name);
    FILE* file = fopen(path, "re");
    int count = -1;
    if (file == NULL || fscanf(file, "%d", &count) != 1) {
        perror(path);
        exit(1);
    }
    fclose(file);
    return count;
}

void fill(unsigned char* bytes, size_t length, unsigned seed) {
    for (size_t i = 0; i < length; i++) {
        bytes[i] = (unsigned char)((i * 31 + (i >> 8) * 17 + seed * 101) & 0xff);
    }
}

bool all_are(const unsigned char* bytes, size_t length, unsigned char value) {
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != value) {
            return false;
        }
    }
    return true;
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

static void leave(struct ibv_context* context) {
    struct ibv_alloc_dm_attr attr = {.length = 4096};
    struct ibv_dm* dm = ibv_alloc_dm(context, &attr);
    struct ibv_pd* pd = ibv_alloc_pd(context);
    REQUIRE(dm != NULL && pd != NULL);
    REQUIRE(ibv_reg_dm_mr(pd, dm, 0, 4096, IBV_ACCESS_ZERO_BASED) != NULL);
    CHECK(module_count("device_memories") == 1);
    raise(SIGKILL);
}

int main(int argc, char** argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); // a crash must not take what was said with it
    struct ibv_context* context = argc > 1 ? open_device(argv[1]) : NULL;
    if (context == NULL) {
        fprintf(stderr, "usage: %s DEVICE [leave] (or the device cannot be opened)\n", argv[0]);
        return 2;
    }
    if (argc > 2) {
        leave(context);
    }
    check_dmabuf(context);
    check_device_memory(context);
    CHECK(ibv_close_device(context) == 0);
    printf("rig_check: %s on %s\n", failures == 0 ? "passed" : "FAILED", argv[1]);
    return failures == 0 ? 0 : 1;
}
