// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into every program of the guest: rxe's user-space provider knows neither dma-bufs nor
// device memory, so the two functions through which a program would meet that are answered here.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>

#include "device_memory.h"
#include "memory_region.h"
#include "uverbs_command.h"

static void* next(const char* name) {
    void* function = dlsym(RTLD_NEXT, name);
    if (function == NULL) {
        // A program that came to libibverbs by a plug-in keeps it to that.
        void* library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
        function = library != NULL ? dlsym(library, name) : NULL;
    }
    if (function == NULL) {
        errno = ENOSYS;
    }
    return function;
}

// Programs call it, and so does librdmacm.
struct ibv_context* ibv_open_device(struct ibv_device* device) {
    struct ibv_context* (*real)(struct ibv_device*) = next("ibv_open_device");
    struct ibv_context* context = real != NULL ? real(device) : NULL;
    if (context != NULL) {
        int error = errno;
        rig_add_device_memory(context);
        errno = error;
    }
    return context;
}

static struct ibv_mr* reg_dmabuf_mr(struct ibv_pd* pd, uint64_t offset, size_t length,
                                    uint64_t iova, int fd, int access) {
    struct rig_mr* region = calloc(1, sizeof(*region));
    if (region == NULL) {
        return NULL;
    }

    struct uverbs_command command;
    uverbs_command_init(&command, UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR);
    struct ib_uverbs_attr* handle =
        uverbs_command_new_object(&command, UVERBS_ATTR_REG_DMABUF_MR_HANDLE);
    uverbs_command_out(&command, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &region->mr.lkey);
    uverbs_command_out(&command, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &region->mr.rkey);
    uverbs_command_object(&command, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pd->handle);
    uverbs_command_u64(&command, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset);
    uverbs_command_u64(&command, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length);
    uverbs_command_u64(&command, UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova);
    uverbs_command_u32(&command, UVERBS_ATTR_REG_DMABUF_MR_FD, (uint32_t)fd);
    uverbs_command_u32(&command, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, (uint32_t)access);
    if (uverbs_command_run(&command, pd->context) != 0) {
        free(region);
        return NULL;
    }
    // libibverbs puts the offset where other regions have their address, too.
    return rig_mr_finish(region, pd, (void*)(uintptr_t)offset, length, (uint32_t)handle->data,
                         RIG_MR_KIND_DMABUF, access);
}

struct ibv_mr* ibv_reg_dmabuf_mr(struct ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                 int fd, int access) {
    if (rig_serves(pd->context)) {
        return reg_dmabuf_mr(pd, offset, length, iova, fd, access);
    }
    struct ibv_mr* (*real)(struct ibv_pd*, uint64_t, size_t, uint64_t, int, int) =
        next("ibv_reg_dmabuf_mr");
    return real != NULL ? real(pd, offset, length, iova, fd, access) : NULL;
}
