/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* What a test can do to softverbs, and see of it, beyond verbs. A program gets these functions by
 * linking softverbs::softverbs, or with dlsym(3) when the library is preloaded. All are
 * thread-safe. Devices are counted from 0, ports from 1. */

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A header of C, with names as verbs.h has them. NOLINTBEGIN(readability-identifier-naming) */

/* Devices. What is set here counts for contexts that are open as well, except the number of
 * devices, and begins anew with softverbs_reset(). */

/* Back to what SOFTVERBS_PROFILE and SOFTVERBS_DEVICES say, or to @profile and @devices when they
 * are given (NULL, 0: not); forgets faults. 0, or an errno: EBUSY (contexts or lists are alive),
 * EINVAL (no such profile). */
int softverbs_reset(const char* profile, unsigned devices);
/* As @devices of softverbs_reset(): none at all, as on a machine that has no such hardware. */
#define SOFTVERBS_NO_DEVICES (~0U)
/* Leaves the devices of the real library, if the machine has any, out of ibv_get_device_list(): for
 * tests of what a program does with those it finds. Stays through softverbs_reset(). */
void softverbs_hide_real_devices(int hide);
/* 0, or ENODEV, EINVAL. Of the attributes, what softverbs enforces follows them: max_mr_size,
 * max_dm_size, odp_caps, atomic_cap, max_qp_wr and their like. */
int softverbs_get_device_attr(unsigned device, struct ibv_device_attr_ex* attr);
int softverbs_set_device_attr(unsigned device, const struct ibv_device_attr_ex* attr);
int softverbs_set_device_name(unsigned device, const char* name);
int softverbs_set_completion_vectors(unsigned device, int vectors);
/* Which optional entry points the device has; all at first. One that is left out answers as in a
 * provider that never had it. */
enum softverbs_feature {
    SOFTVERBS_FEATURE_CREATE_QP_EX = 1 << 0, /* ibv_create_qp_ex with send_ops_flags: ibv_wr_* */
    SOFTVERBS_FEATURE_CREATE_CQ_EX = 1 << 1,
    SOFTVERBS_FEATURE_DM = 1 << 2,
    SOFTVERBS_FEATURE_DM_COPY = 1 << 3, /* memcpy_to_dm and memcpy_from_dm of an ibv_dm are set */
    SOFTVERBS_FEATURE_DM_COPY_GARBAGE = 1 << 4, /* they are not set, and not null either */
    SOFTVERBS_FEATURE_DMABUF = 1 << 5,
    SOFTVERBS_FEATURE_MW = 1 << 6,
    SOFTVERBS_FEATURE_QUERY_DEVICE_EX = 1 << 7,
};
int softverbs_set_features(unsigned device, unsigned features);
unsigned softverbs_features(unsigned device);
/* What ibv_reg_dmabuf_mr fails with: before the descriptor is looked at, as where the kernel or
 * driver lacks it, and after, as an exporter does. 0: not. With unchecked, descriptors that are not
 * open are registered. */
int softverbs_set_dmabuf_errors(unsigned device, int before, int attach, int unchecked);
/* Ports are added as needed; count is at most 8. */
int softverbs_set_port_count(unsigned device, uint8_t count);
int softverbs_set_port_attr(unsigned device, uint8_t port, const struct ibv_port_attr* attr);
int softverbs_set_gid_table(unsigned device, uint8_t port, const struct ibv_gid_entry* entries,
                            size_t count);
/* Active or down, as when a cable is pulled: with IBV_EVENT_PORT_ACTIVE or _ERR to every context;
 * while it is down nothing is sent or received. */
int softverbs_set_port_state(unsigned device, uint8_t port, enum ibv_port_state state);

/* Faults */

/* The @nth (from 1) call of @verb ("ibv_reg_mr"; without "ibv_" as well; "ibv_reg_mr" means
 * ibv_reg_mr_iova2 too; NULL: any that makes, changes or asks for something, not those that
 * destroy, which have to be named) from now on fails with @error, once. 0, or EINVAL (no such
 * verb). */
int softverbs_fail_call(const char* verb, unsigned nth, int error);
enum softverbs_packet_fault {
    SOFTVERBS_PACKET_DROP,
    SOFTVERBS_PACKET_DELAY, /* by @delay_ms */
    SOFTVERBS_PACKET_DUPLICATE,
    SOFTVERBS_PACKET_CORRUPT, /* the receiver finds out by its checksum, and drops it */
};
/* The @nth packet that this process sends from now on. */
int softverbs_fail_packet(enum softverbs_packet_fault fault, unsigned nth, unsigned delay_ms);
/* Faults as in SOFTVERBS_FAULTS: a list separated by commas of
 *   <verb>[#<n>]=<errno's name>        reg_mr#3=ENOMEM
 *   packet#<n>=drop|duplicate|corrupt|delay:<ms>
 *   dm=exhausted                       no device memory is left
 *   dmabuf=unmappable                  dma-bufs have no mmap(2), as those of GPUs
 * EINVAL, and nothing is changed, when it is not that. */
int softverbs_set_faults(const char* text);
/* How many of the faults asked for have not happened yet. */
unsigned softverbs_pending_faults(void);
void softverbs_clear_faults(void);
/* The region's memory is gone, as when a dma-buf's exporter revokes it: whoever uses it gets an
 * error. */
int softverbs_revoke_mr(struct ibv_mr* mr);
/* IBV_EVENT_DEVICE_FATAL; from now on what is outstanding is flushed and calls fail with EIO. */
int softverbs_fail_device(struct ibv_context* context);
/* Any asynchronous event, as if it had happened. */
int softverbs_raise_event(struct ibv_context* context, const struct ibv_async_event* event);
/* A completion, as if it had happened. */
int softverbs_complete(struct ibv_cq* cq, const struct ibv_wc* completion);
/* The same just before the next request for an event takes effect: too early to raise one. */
int softverbs_complete_before_request(struct ibv_cq* cq, const struct ibv_wc* completion);
/* The event that was asked for, for a completion that somebody else has taken. */
int softverbs_raise_cq_event(struct ibv_cq* cq);
/* As after an overrun: polling fails. */
int softverbs_break_cq(struct ibv_cq* cq);

/* Seeing */

enum softverbs_kind {
    SOFTVERBS_LIST,
    SOFTVERBS_CONTEXT,
    SOFTVERBS_PD,
    SOFTVERBS_CHANNEL,
    SOFTVERBS_CQ,
    SOFTVERBS_SRQ,
    SOFTVERBS_AH,
    SOFTVERBS_MR,
    SOFTVERBS_MW,
    SOFTVERBS_DM,
    SOFTVERBS_QP,
    SOFTVERBS_TD,
    SOFTVERBS_XRCD,
    SOFTVERBS_KINDS, /* how many there are; as an argument: all of them */
};
/* How many objects of a kind this process has. */
size_t softverbs_live(enum softverbs_kind kind);
/* How often something that was in use was to be destroyed (EBUSY; a device is closed all the same),
 * or an object was passed that is not there any more. */
unsigned softverbs_violations(void);
/* Events taken and not acknowledged. */
unsigned softverbs_unacknowledged_events(void);
/* Whether an event was asked for and has not been raised. */
int softverbs_cq_armed(struct ibv_cq* cq);
/* How the last process that this one talked to gets the bytes of private memory: "process_vm",
 * "records", or "none yet". */
const char* softverbs_pull_method(void);
/* The number of packets sent, received, dropped as corrupt, sent again. */
struct softverbs_counters {
    uint64_t sent, received, corrupt, retried;
};
void softverbs_get_counters(struct softverbs_counters* counters);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif
