// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// <netinet/in.h> must be included before <rdma/rdma_user_cm.h>. Otherwise, <linux/in6.h> defines
// the same structures with other members, which violates the One Definition Rule.
#include <netinet/in.h>        // IWYU pragma: keep
#include <rdma/rdma_user_cm.h> // IWYU pragma: export
