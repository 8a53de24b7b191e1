// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A device that does nothing, at once, and successfully: what is left of a loop is its own cost.
struct null_device { // NOLINT(readability-identifier-naming): as C names things
    struct ibv_device device;
    struct ibv_context context;
    struct ibv_pd pd;
    struct ibv_cq cq;
    struct ibv_cq_ex cqx;
    /// Completions of cqx that the current batch has not read.
    int left;
    struct ibv_qp_ex qpx;
};

/// Wires the objects to each other and to the operations. @p device must stay where it is.
void null_device_init(struct null_device* device);

#ifdef __cplusplus
}
#endif
