// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A device whose operations do nothing and succeed at once: only the cost of a loop remains.
struct null_device { // NOLINT(readability-identifier-naming): as C names things
    struct ibv_device device;
    struct ibv_context context;
    struct ibv_pd pd;
    struct ibv_cq cq;
    struct ibv_cq_ex cqx;
    /// The number of completions in the current batch of `cqx` that are not read yet.
    int left;
    struct ibv_qp_ex qpx;
};

/// Connects the objects with each other, and sets their operations. @p device must not move later.
void null_device_init(struct null_device* device);

#ifdef __cplusplus
}
#endif
