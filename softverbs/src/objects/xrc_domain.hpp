// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "objects/device.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// What all ibv_xrcd objects that were opened for the same file have in common.
struct XrcDomain; // xrc_domain.cpp

struct Xrcd : ibv_xrcd {
    Xrcd() : ibv_xrcd{} {}
    XrcDomain* domain = nullptr;
    /// Queue pairs and shared receive queues that were made with this object.
    unsigned users = 0;
};

// These functions implement the verbs of the same name. The caller holds Process::lock.

/// Null and errno, as the kernel has them: EINVAL (O_EXCL, and the domain exists), EAGAIN (no
/// O_CREAT, and it does not exist), EBADF.
[[nodiscard]] Xrcd* open_xrcd(Context& context, const ibv_xrcd_init_attr& attributes);
[[nodiscard]] int close_xrcd(Xrcd& xrcd);

/// Adds a shared receive queue to the domain, which gives it its number. May throw std::bad_alloc.
void add(Xrcd& xrcd, Srq& srq);
/// Removes it. Target queue pairs forget it.
void remove(Srq& srq);

/// Makes a target queue pair (IBV_QPT_XRC_RECV) use the shared receive queue that a request names:
/// for its receive requests, their completions and the protection domain. False: there is no such
/// queue in the domain.
[[nodiscard]] bool select_srq(Qp& target, std::uint32_t srq_number);

/// Removes the completions of a target queue pair that were not polled, before it is freed.
void forget_completions(const Qp& target);

/// A handle of a target queue pair. A target queue pair belongs to its domain: ibv_create_qp_ex()
/// and ibv_open_qp() return handles, and the last handle that is destroyed destroys it.
/// Null: out of memory.
[[nodiscard]] Qp* make_handle(Qp& target, Xrcd& xrcd, void* qp_context);
/// Null and errno: EINVAL (wrong attributes, or no such target queue pair in the domain).
[[nodiscard]] Qp* open_qp(Context& context, const ibv_qp_open_attr& attributes);

} // namespace softverbs
