// SPDX-License-Identifier: BSD-3-Clause
// Memory regions that libibverbs' own ibv_dereg_mr can deregister and free.
#pragma once

#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>

// How libibverbs lays out every region: ibv_mr, then what kind it is. Private to it, but the same
// since kinds exist (rdma-core 28); ibv_dereg_mr decides by kind whether fork has to be told.
enum rig_mr_kind { RIG_MR_KIND_MEMORY = 0, RIG_MR_KIND_DMABUF = 3 };

struct rig_mr {
    struct ibv_mr mr;
    int kind;
    int access;
    uint64_t room[8]; // for members a later libibverbs may have added
};

static inline struct ibv_mr* rig_mr_finish(struct rig_mr* region, struct ibv_pd* pd, void* addr,
                                           size_t length, uint32_t handle, enum rig_mr_kind kind,
                                           int access) {
    region->mr.context = pd->context;
    region->mr.pd = pd;
    region->mr.addr = addr;
    region->mr.length = length;
    region->mr.handle = handle;
    region->kind = kind;
    region->access = access;
    return &region->mr;
}
