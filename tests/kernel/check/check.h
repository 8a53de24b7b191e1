// SPDX-License-Identifier: BSD-3-Clause
// What the checks of the rig itself share. Plain C on plain verbs, so that a fault here is the
// rig's and not the library's.
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int failures;

// Counts a failure and prints where, what and errno; says nothing otherwise.
#define CHECK(condition)                                                                 \
    do {                                                                                 \
        bool check_holds = (condition);                                                  \
        int check_errno = errno;                                                         \
        if (!check_holds) {                                                              \
            failures++;                                                                  \
            printf("%s:%d: not so: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, \
                   check_errno, strerror(check_errno));                                  \
        }                                                                                \
    } while (0)

// What nothing after it could do without.
#define REQUIRE(condition)                \
    do {                                  \
        int before_require = failures;    \
        CHECK(condition);                 \
        if (failures != before_require) { \
            exit(1);                      \
        }                                 \
    } while (0)

// The call must return NULL (or -1) and leave this errno.
#define CHECK_REFUSED(call, error) \
    do {                           \
        errno = 0;                 \
        CHECK((call) == 0);        \
        CHECK(errno == (error));   \
    } while (0)

enum {
    ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                 IBV_ACCESS_REMOTE_ATOMIC,
};

// Two connected RC queue pairs of one process and a registered buffer to move data from and to.
struct loop {
    struct ibv_context* context;
    struct ibv_pd* pd;
    struct ibv_cq* cq;
    struct ibv_qp* near;
    struct ibv_qp* far;
    unsigned char* buffer;
    size_t size;
    struct ibv_mr* mr;
};

// Exits the process when it cannot: nothing else could be checked.
struct loop loop_open(struct ibv_context* context, size_t size);
void loop_close(struct loop* loop);

// One one-sided operation between the start of the buffer and remote; the completion's status.
enum ibv_wc_status loop_rdma(struct loop* loop, enum ibv_wr_opcode opcode, size_t length,
                             uint64_t remote, uint32_t rkey);
// The value found at remote arrives at the start of the buffer.
enum ibv_wc_status loop_fetch_add(struct loop* loop, uint64_t add, uint64_t remote, uint32_t rkey);

// A parameter of the test module: how many of something are alive.
int module_count(const char* name);

void fill(unsigned char* bytes, size_t length, unsigned seed);
bool all_are(const unsigned char* bytes, size_t length, unsigned char value);

void check_dmabuf(struct ibv_context* context);
void check_device_memory(struct ibv_context* context);
