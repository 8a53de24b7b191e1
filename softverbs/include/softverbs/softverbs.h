/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Functions with which a test controls softverbs and reads its state. A program gets them by
 * linking softverbs::softverbs, or by dlsym(3) when the library is preloaded. All except
 * softverbs_advance() are thread-safe. Device numbers start at 0, port numbers at 1. Functions that
 * return an int without another description return 0, or an errno: EINVAL (a wrong argument),
 * ENODEV (no such device), ENOMEM. */

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A C header whose names follow those of verbs.h. NOLINTBEGIN(readability-identifier-naming) */

/* Devices. The settings also apply to contexts that are open already. softverbs_reset() restores
 * the default settings. */

/* Returns the valid values of SOFTVERBS_PROFILE, separated by spaces, or NULL if memory is
 * exhausted. The string is valid until the process ends. */
const char* softverbs_profile_names(void);
/* Returns the rendezvous directory, in which processes of this user find each other: SOFTVERBS_DIR,
 * or its default. Creates the directory if it does not exist. If the directory cannot be used,
 * prints the reason on stderr, returns NULL and sets errno. If memory is exhausted, returns NULL
 * and sets errno. The string is valid until the process ends. */
const char* softverbs_directory(void);
/* Creates the devices again, with default settings, and removes all planned faults. @profile is the
 * profile of the devices (NULL: that of SOFTVERBS_PROFILE), @devices their number (0: that of
 * SOFTVERBS_DEVICES). Returns 0, or an errno: EBUSY (a context is open or was closed before its
 * objects were destroyed, or a device list is not freed), EINVAL (no such profile, or more than 8
 * devices), ENOMEM. */
int softverbs_reset(const char* profile, unsigned devices);
/* Value for @devices of softverbs_reset(): no device, as on a machine without RDMA hardware. */
#define SOFTVERBS_NO_DEVICES (~0U)
/* Sets whether ibv_get_device_list() omits the devices of the real libibverbs, so that a test sees
 * the same devices on every machine. softverbs_reset() does not change this setting. */
void softverbs_hide_real_devices(int hide);
/* Device attributes. softverbs enforces the new limits and capabilities, such as max_mr_size,
 * max_dm_size, odp_caps, atomic_cap and max_qp_wr, but ignores the number of ports in @attr. */
int softverbs_get_device_attr(unsigned device, struct ibv_device_attr_ex* attr);
int softverbs_set_device_attr(unsigned device, const struct ibv_device_attr_ex* attr);
int softverbs_set_device_name(unsigned device, const char* name);
int softverbs_set_completion_vectors(unsigned device, int vectors);
/* Optional features of a device, as a bit mask. With the default profile, a device has all of them
 * except SOFTVERBS_FEATURE_DM_COPY_GARBAGE. With other profiles, it can lack more. Without a
 * feature, its verbs behave as with a provider that does not implement them. */
enum softverbs_feature {
    SOFTVERBS_FEATURE_CREATE_QP_EX = 1 << 0, /* needed for ibv_wr_*() and XRC targets */
    SOFTVERBS_FEATURE_CREATE_CQ_EX = 1 << 1,
    SOFTVERBS_FEATURE_DM = 1 << 2,
    SOFTVERBS_FEATURE_DM_COPY = 1 << 3, /* ibv_dm::memcpy_to_dm and memcpy_from_dm are not null */
    SOFTVERBS_FEATURE_DM_COPY_GARBAGE = 1 << 4, /* these pointers are invalid and not null */
    SOFTVERBS_FEATURE_DMABUF = 1 << 5,
    SOFTVERBS_FEATURE_MW = 1 << 6,
    SOFTVERBS_FEATURE_QUERY_DEVICE_EX = 1 << 7,
};
int softverbs_set_features(unsigned device, unsigned features);
/* Returns the bit mask of the features that the device has; 0 if the device does not exist. */
unsigned softverbs_features(unsigned device);
/* Makes ibv_reg_dmabuf_mr() fail with the errno @before or @attach; 0: no failure. @before: fails
 * before it checks the descriptor, like a kernel or driver without dma-buf support. @attach: fails
 * after the check of the descriptor, like an exporter that rejects the device. If @unchecked is not
 * 0, a descriptor that fails this check is registered as well, for example one that is not open or
 * cannot be mapped. */
int softverbs_set_dmabuf_errors(unsigned device, int before, int attach, int unchecked);
/* Sets the number of ports to @count, 1 to 8. A new port is a copy of port 1 with its own GIDs and,
 * if the LID of port 1 is not 0, its own LID. */
int softverbs_set_port_count(unsigned device, uint8_t count);
int softverbs_set_port_attr(unsigned device, uint8_t port, const struct ibv_port_attr* attr);
int softverbs_set_gid_table(unsigned device, uint8_t port, const struct ibv_gid_entry* entries,
                            size_t count);
/* Sets a port to IBV_PORT_ACTIVE or IBV_PORT_DOWN, as when its cable is plugged or pulled. If this
 * changes its state, raises IBV_EVENT_PORT_ACTIVE or IBV_EVENT_PORT_ERR in every context of the
 * device. A port that is down neither sends nor receives packets. */
int softverbs_set_port_state(unsigned device, uint8_t port, enum ibv_port_state state);

/* Faults */

/* Makes the @nth call of @verb from now on fail with @error, once; @nth starts at 1. @verb is a
 * name such as "ibv_reg_mr", "reg_mr" or "rdma_connect"; "ibv_reg_mr" includes ibv_reg_mr_iova2().
 * NULL counts the calls of all verbs that can fail in this way, except those that destroy objects,
 * which fail only if they are named. Returns 0, EINVAL (@verb is no such verb, @nth is 0, or @error
 * is not positive), or ENOMEM. */
int softverbs_fail_call(const char* verb, unsigned nth, int error);
enum softverbs_packet_fault {
    SOFTVERBS_PACKET_DROP,
    SOFTVERBS_PACKET_DELAY, /* by @delay_ms milliseconds */
    SOFTVERBS_PACKET_DUPLICATE,
    SOFTVERBS_PACKET_CORRUPT, /* the receiver drops the packet, as after a checksum error */
};
/* Applies a fault to the @nth packet that this process sends from now on; @nth starts at 1. */
int softverbs_fail_packet(enum softverbs_packet_fault fault, unsigned nth, unsigned delay_ms);
/* Replaces all planned faults by those in @text, except state changes of softverbs_flap_port(), and
 * ends the delay of softverbs_slow_down(). @text has the format of SOFTVERBS_FAULTS: a list,
 * separated by commas, of
 *   <verb>[#<n>]=<errno's name>        call <n> (default: 1) fails: reg_mr#3=ENOMEM
 *   packet[#<n>]=drop|duplicate|corrupt|delay:<ms>
 *   slow:<ms>ms                        every packet is delayed
 *   port[:<d>[/<p>]]=down|up|flap:<ms>ms*<n>   port <p> (default: 1) of device <d> (default: 0)
 *                                      goes down, goes up, or goes down and up <n> times, and
 *                                      raises the events
 *   device[:<d>]=reset                 as softverbs_reset_device()
 *   dm=exhausted                       no device memory is left
 *   dmabuf=unmappable                  dma-bufs do not support mmap(2), like those of GPUs
 * A delay can follow a fault of a port or a device: port=down@500ms. The delay begins with this
 * call. For SOFTVERBS_FAULTS, it begins when the process creates its first queue pair. Returns 0 or
 * an errno: EINVAL (@text has another format) or ENODEV (there is no such device or port), after
 * which the faults do not change; ENOMEM, EAGAIN (the thread that changes the states cannot be
 * created). */
int softverbs_set_faults(const char* text);
/* Selects the kinds of ordering that softverbs does not keep, in place of those selected before.
 * @text has the format of SOFTVERBS_DISORDER, see README.md; an empty text restores all ordering.
 * Returns 0, EINVAL (@text has another format; nothing changes), or ENOMEM. */
int softverbs_set_disorder(const char* text);
/* Returns the number of planned faults of calls and packets that have not occurred yet. */
unsigned softverbs_pending_faults(void);
void softverbs_clear_faults(void);
/* Revokes the memory of a region, as the exporter of a dma-buf can. Later accesses to the region
 * and to the windows bound to it fail. */
int softverbs_revoke_mr(struct ibv_mr* mr);
/* Raises IBV_EVENT_DEVICE_FATAL, flushes all outstanding work requests of the queue pairs of the
 * context, and raises RDMA_CM_EVENT_DEVICE_REMOVAL on each rdma_cm_id of the device. The verbs of
 * the context then fail with EIO, except those that destroy objects, poll completions or read
 * events. */
int softverbs_fail_device(struct ibv_context* context);
/* Calls softverbs_fail_device() for every context of a device, as when its driver resets it.
 * Returns 0, ENODEV or ENOMEM. */
int softverbs_reset_device(unsigned device);
/* Takes a port down and up again @times times. Each state lasts @period_ms milliseconds. A thread
 * of the library changes the states as softverbs_set_port_state() does, so the call returns at
 * once. Returns 0, or ENODEV, EINVAL, ENOMEM, EAGAIN (the thread cannot be created). */
int softverbs_flap_port(unsigned device, uint8_t port, unsigned period_ms, unsigned times);
/* Delays every packet that this process sends by @delay_ms milliseconds; 0 ends the delay. Returns
 * 0, or EINVAL (more than 60000). */
int softverbs_slow_down(unsigned delay_ms);
/* Raises an asynchronous event in a context. */
int softverbs_raise_event(struct ibv_context* context, const struct ibv_async_event* event);
/* Adds a completion to a completion queue, and raises an event if the queue is armed. If it was
 * armed for solicited completions only, raises an event only if @completion reports an error. */
int softverbs_complete(struct ibv_cq* cq, const struct ibv_wc* completion);
/* Adds a completion during the next ibv_req_notify_cq(), just before that call arms the queue, so
 * that the completion raises no event unless the queue was armed before. */
int softverbs_complete_before_request(struct ibv_cq* cq, const struct ibv_wc* completion);
/* Raises a completion event without a completion, if the queue is armed. A program gets such an
 * event if another thread has already polled the completion. */
int softverbs_raise_cq_event(struct ibv_cq* cq);
/* Makes a completion queue overrun: polling fails, IBV_EVENT_CQ_ERR is raised, and the queue pairs
 * that use the queue enter the error state, except those in the reset state. */
int softverbs_break_cq(struct ibv_cq* cq);

/* Time */

/* Stops the clock of softverbs in this process, so that a test does not depend on the speed of the
 * machine. While the clock is stopped, the background threads of softverbs do nothing: they run no
 * timers and process no packets or messages of rdma_cm. The functions below do this work in the
 * thread that calls them. The clock covers all that softverbs does after a time: timeouts, RNR
 * timers, planned faults, disorder, event moderation, timers of rdma_cm,
 * SOFTVERBS_REGISTRATION_DELAY and timestamps. Verbs work as usual, and ibv_poll_cq() also
 * processes packets if it finds the completion queue empty. But a call that blocks, such as
 * ibv_get_cq_event(), waits until another thread causes the event. With
 * SOFTVERBS_REGISTRATION_DELAY, a registration waits until another thread moves the clock.
 * Processes have their own clocks; a child by fork(2) inherits the state of the clock.
 * SOFTVERBS_CLOCK=manual stops the clock when the process first uses softverbs. Returns 0, or EBUSY
 * (the clock is stopped already). */
int softverbs_take_clock(void);
/* Lets the clock run again, from the time at which it stands, and resumes the background threads.
 * Returns 0, or EPERM (the clock is not stopped). */
int softverbs_release_clock(void);
/* Returns the time in nanoseconds. It is that of CLOCK_MONOTONIC until the clock is stopped for the
 * first time. */
uint64_t softverbs_now(void);
/* Processes packets and messages that have arrived, and runs the timers that have expired. Returns
 * 1, or 0 if there was nothing to do: call it until it returns 0 to process all that has arrived.
 * Returns -1 and sets errno to EPERM if the clock is not stopped. */
int softverbs_step(void);
/* Moves the clock forward by @ns nanoseconds. The timers that expire in this time run in the order
 * of their times, each at its time. Before each, softverbs_step() is called until it returns 0. The
 * function must not be called in several threads at the same time. Returns 0, or an errno: EPERM
 * (the clock is not stopped), EINVAL (@ns is too large). */
int softverbs_advance(uint64_t ns);
/* Returns the nanoseconds until the next timer expires, or UINT64_MAX if no timer is set. */
uint64_t softverbs_next_timer(void);

/* State */

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
    SOFTVERBS_KINDS, /* number of kinds; as an argument, all kinds */
};
/* Returns the number of objects of a kind that this process has created and not destroyed. */
size_t softverbs_live(enum softverbs_kind kind);
/* Returns how many errors the program has made: destroying an object that is in use (EBUSY),
 * closing a device while objects of it exist, acknowledging more events than were received, and
 * ibv_start_poll() in two threads at the same time for a single-threaded completion queue. */
unsigned softverbs_violations(void);
/* Returns the number of events that the program has received and not acknowledged. */
unsigned softverbs_unacknowledged_events(void);
/* Returns 1 if the completion queue is armed: an event was requested and has not been raised.
 * Otherwise returns 0. */
int softverbs_cq_armed(struct ibv_cq* cq);
/* Returns how another process gets the data of long messages from private memory of this process:
 * "process_vm" (with process_vm_readv(2), or from /proc/<pid>/mem), "records" (in packets), or
 * "none yet" (there is no such process, or it has not accepted the connection). The other process
 * is the one to which a queue pair of this process has most recently begun to send. The string is
 * static. */
const char* softverbs_pull_method(void);
/* Numbers of packets sent, received, and dropped as corrupt, and number of retries after a timeout,
 * an RNR NAK, a sequence error NAK or a lost response. */
struct softverbs_counters {
    uint64_t sent, received, corrupt, retried;
    /* Number of steps, of at most 1 MiB each, in which this process has copied data directly from
     * memory of the sender. A long message needs several steps, so that other threads can call
     * verbs in the meantime. */
    uint64_t direct_copies;
};
void softverbs_get_counters(struct softverbs_counters* counters);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif
