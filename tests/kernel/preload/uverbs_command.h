// SPDX-License-Identifier: BSD-3-Clause
// One call of the kernel's uverbs ioctl, built by hand. libibverbs has the same inside, but private
// to each of its versions; the kernel's interface is stable.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>

enum { UVERBS_COMMAND_MAX_ATTRS = 9 };

struct uverbs_command {
    struct ib_uverbs_ioctl_hdr header;
    struct ib_uverbs_attr attrs[UVERBS_COMMAND_MAX_ATTRS];
};

static inline void uverbs_command_init(struct uverbs_command* command, uint16_t object,
                                       uint16_t method) {
    memset(command, 0, sizeof(*command));
    command->header.object_id = object;
    command->header.method_id = method;
    command->header.driver_id = RDMA_DRIVER_RXE;
}

static inline struct ib_uverbs_attr* uverbs_command_attr(struct uverbs_command* command,
                                                         uint16_t id, uint16_t length,
                                                         uint64_t data) {
    struct ib_uverbs_attr* attr = &command->attrs[command->header.num_attrs++];
    attr->attr_id = id;
    attr->len = length;
    attr->flags = UVERBS_ATTR_F_MANDATORY;
    attr->data = data;
    return attr;
}

// The kernel takes values of up to 8 bytes from the attribute itself.
static inline void uverbs_command_u64(struct uverbs_command* command, uint16_t id, uint64_t value) {
    uverbs_command_attr(command, id, sizeof(uint64_t), value);
}

static inline void uverbs_command_u32(struct uverbs_command* command, uint16_t id, uint32_t value) {
    uverbs_command_attr(command, id, sizeof(uint32_t), value);
}

static inline void uverbs_command_object(struct uverbs_command* command, uint16_t id,
                                         uint32_t handle) {
    uverbs_command_attr(command, id, 0, handle);
}

static inline void uverbs_command_out(struct uverbs_command* command, uint16_t id, uint32_t* out) {
    uverbs_command_attr(command, id, sizeof(*out), (uintptr_t)out);
}

// The kernel writes the new object's handle into the attribute.
static inline struct ib_uverbs_attr* uverbs_command_new_object(struct uverbs_command* command,
                                                               uint16_t id) {
    return uverbs_command_attr(command, id, 0, 0);
}

// 0, or -1 with errno set.
static inline int uverbs_command_run(struct uverbs_command* command, struct ibv_context* context) {
    command->header.length =
        (uint16_t)(sizeof(command->header) + command->header.num_attrs * sizeof(command->attrs[0]));
    return ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &command->header);
}
