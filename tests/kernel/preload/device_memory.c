// SPDX-License-Identifier: BSD-3-Clause
// The user-space half of device memory: what a provider such as mlx5's does for ibv_alloc_dm and
// its kin, with the same rules for copies.
#include "device_memory.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory_region.h"
#include "uverbs_command.h"

// RIG_DM_MMAP_BASE of the module.
static const uint64_t mmap_base = UINT64_C(1) << 40;

struct rig_dm {
    struct ibv_dm dm;
    volatile uint32_t* words;
    size_t length;
};

static int check_copy(const struct rig_dm* dm, uint64_t offset, size_t length) {
    if (offset > dm->length || length > dm->length - offset) {
        return EFAULT;
    }
    return (offset | length) % sizeof(uint32_t) != 0 ? EINVAL : 0;
}

// Word by word, as device memory behind a bus would be accessed. The host side may lie anywhere.
static int copy_to_dm(struct ibv_dm* ibdm, uint64_t offset, const void* host, size_t length) {
    struct rig_dm* dm = (struct rig_dm*)ibdm;
    int error = check_copy(dm, offset, length);
    for (size_t i = 0; error == 0 && i < length; i += sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, (const char*)host + i, sizeof(word));
        dm->words[(offset + i) / sizeof(word)] = word;
    }
    return error;
}

static int copy_from_dm(void* host, struct ibv_dm* ibdm, uint64_t offset, size_t length) {
    struct rig_dm* dm = (struct rig_dm*)ibdm;
    int error = check_copy(dm, offset, length);
    for (size_t i = 0; error == 0 && i < length; i += sizeof(uint32_t)) {
        uint32_t word = dm->words[(offset + i) / sizeof(word)];
        memcpy((char*)host + i, &word, sizeof(word));
    }
    return error;
}

static size_t mapped_size(size_t length) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (length + page - 1) / page * page;
}

static int free_handle(struct ibv_context* context, uint32_t handle) {
    struct uverbs_command command;
    uverbs_command_init(&command, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE);
    uverbs_command_object(&command, UVERBS_ATTR_FREE_DM_HANDLE, handle);
    return uverbs_command_run(&command, context) ? errno : 0;
}

static struct ibv_dm* alloc_dm(struct ibv_context* context, struct ibv_alloc_dm_attr* attr) {
    if (attr->comp_mask != 0) {
        errno = EINVAL;
        return NULL;
    }
    struct rig_dm* dm = calloc(1, sizeof(*dm));
    if (dm == NULL) {
        return NULL;
    }

    struct uverbs_command command;
    uverbs_command_init(&command, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
    struct ib_uverbs_attr* handle =
        uverbs_command_new_object(&command, UVERBS_ATTR_ALLOC_DM_HANDLE);
    uverbs_command_u64(&command, UVERBS_ATTR_ALLOC_DM_LENGTH, attr->length);
    uverbs_command_u32(&command, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, attr->log_align_req);
    if (uverbs_command_run(&command, context) != 0) {
        free(dm);
        return NULL;
    }
    dm->dm.handle = (uint32_t)handle->data;
    dm->length = attr->length;

    off_t offset = (off_t)(mmap_base + (uint64_t)dm->dm.handle * (uint64_t)sysconf(_SC_PAGESIZE));
    void* map = mmap(NULL, mapped_size(dm->length), PROT_READ | PROT_WRITE, MAP_SHARED,
                     context->cmd_fd, offset);
    if (map == MAP_FAILED) {
        int error = errno;
        free_handle(context, dm->dm.handle);
        free(dm);
        errno = error;
        return NULL;
    }
    dm->words = map;
    dm->dm.context = context;
    dm->dm.comp_mask = IBV_DM_MASK_HANDLE;
    dm->dm.memcpy_to_dm = copy_to_dm;
    dm->dm.memcpy_from_dm = copy_from_dm;
    return &dm->dm;
}

static int free_dm(struct ibv_dm* ibdm) {
    struct rig_dm* dm = (struct rig_dm*)ibdm;
    // The kernel first: it refuses while a region uses the memory, and then nothing may change.
    int error = free_handle(ibdm->context, ibdm->handle);
    if (error == 0) {
        munmap((void*)dm->words, mapped_size(dm->length));
        free(dm);
    }
    return error;
}

static struct ibv_mr* reg_dm_mr(struct ibv_pd* pd, struct ibv_dm* dm, uint64_t offset,
                                size_t length, unsigned int access) {
    if (!(access & IBV_ACCESS_ZERO_BASED)) {
        errno = EINVAL;
        return NULL;
    }
    struct rig_mr* region = calloc(1, sizeof(*region));
    if (region == NULL) {
        return NULL;
    }

    struct uverbs_command command;
    uverbs_command_init(&command, UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG);
    struct ib_uverbs_attr* handle =
        uverbs_command_new_object(&command, UVERBS_ATTR_REG_DM_MR_HANDLE);
    uverbs_command_out(&command, UVERBS_ATTR_REG_DM_MR_RESP_LKEY, &region->mr.lkey);
    uverbs_command_out(&command, UVERBS_ATTR_REG_DM_MR_RESP_RKEY, &region->mr.rkey);
    uverbs_command_object(&command, UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pd->handle);
    uverbs_command_object(&command, UVERBS_ATTR_REG_DM_MR_DM_HANDLE, dm->handle);
    uverbs_command_u64(&command, UVERBS_ATTR_REG_DM_MR_OFFSET, offset);
    uverbs_command_u64(&command, UVERBS_ATTR_REG_DM_MR_LENGTH, length);
    uverbs_command_u32(&command, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, access);
    if (uverbs_command_run(&command, pd->context) != 0) {
        free(region);
        return NULL;
    }
    return rig_mr_finish(region, pd, NULL, length, (uint32_t)handle->data, RIG_MR_KIND_MEMORY,
                         (int)access);
}

bool rig_serves(struct ibv_context* context) {
    struct verbs_context* verbs = verbs_get_ctx(context);
    return verbs != NULL && verbs->alloc_dm == alloc_dm;
}

// Providers without device memory have an operation too: libibverbs' own, which says so.
static bool provider_allocates(struct verbs_context* verbs) {
    struct ibv_alloc_dm_attr nothing = {0};
    errno = 0;
    return verbs->alloc_dm(&verbs->context, &nothing) != NULL || errno != EOPNOTSUPP;
}

void rig_add_device_memory(struct ibv_context* context) {
    // A device that reports device memory although its provider cannot allocate any: the module's.
    struct ibv_device_attr_ex attr;
    struct verbs_context* verbs = verbs_get_ctx(context);
    if (verbs == NULL || ibv_query_device_ex(context, NULL, &attr) != 0 || attr.max_dm_size == 0 ||
        provider_allocates(verbs)) {
        return;
    }
    verbs->alloc_dm = alloc_dm;
    verbs->free_dm = free_dm;
    verbs->reg_dm_mr = reg_dm_mr;
}
