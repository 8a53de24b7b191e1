// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "objects/device.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// The state that all ibv_xrcd objects opened for the same file share.
struct XrcDomain; // xrc_domain.cpp

struct Xrcd : ibv_xrcd {
    Xrcd() : ibv_xrcd{} {}
    XrcDomain* domain = nullptr;
    /// Number of queue pairs and shared receive queues that were created with this object.
    unsigned users = 0;
};

// The functions below implement the verbs of the same name. The caller holds Process::lock.

/// Opens an XRC domain. Returns null and sets errno on failure, with the values of the kernel:
/// EINVAL (O_EXCL is set and the domain exists), EAGAIN (O_CREAT is not set and the domain does not
/// exist), EBADF.
[[nodiscard]] Xrcd* open_xrcd(Context& context, const ibv_xrcd_init_attr& attributes);
[[nodiscard]] int close_xrcd(Xrcd& xrcd);

/// Adds a shared receive queue to the domain and assigns its number. May throw std::bad_alloc.
void add(Xrcd& xrcd, Srq& srq);
/// Removes a shared receive queue from its domain and from the target queue pairs that use it.
void remove(Srq& srq);

/// Selects the shared receive queue, named in a request, for a target queue pair
/// (IBV_QPT_XRC_RECV). The target then uses its receive requests, its completion queue and its
/// protection domain. Returns false if the domain has no such queue.
[[nodiscard]] bool select_srq(Qp& target, std::uint32_t srq_number);

/// Removes the unpolled completions of a target queue pair before it is freed.
void forget_completions(const Qp& target);

/// Creates a handle of a target queue pair. A target queue pair belongs to its domain:
/// ibv_create_qp_ex() and ibv_open_qp() return handles, and destroying the last handle destroys the
/// target. Returns null if there is no memory.
[[nodiscard]] Qp* make_handle(Qp& target, Xrcd& xrcd, void* qp_context);
/// Opens a target queue pair of the domain. Returns null and sets errno on failure: EINVAL (invalid
/// attributes, or no such target queue pair in the domain).
[[nodiscard]] Qp* open_qp(Context& context, const ibv_qp_open_attr& attributes);

} // namespace softverbs
