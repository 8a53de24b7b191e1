// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "objects/device.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// An XRC domain, which all ibv_xrcd objects for the same device and the same file share. Without a
/// file, an ibv_xrcd has its own domain.
struct XrcDomain; // xrc_domain.cpp

struct Xrcd : ibv_xrcd {
    Xrcd() : ibv_xrcd{} {}
    XrcDomain* domain = nullptr;
    /// Number of queue pairs (created or opened) and shared receive queues that now use this
    /// ibv_xrcd.
    unsigned users = 0;
};

// These functions implement verbs with similar names, for example ibv_open_xrcd(). The caller must
// hold Process::lock.

/// Implements ibv_open_xrcd(). On failure, returns null and sets errno as the kernel does: EINVAL
/// (invalid attributes, or O_EXCL is set and the domain exists), EAGAIN (O_CREAT is not set and the
/// domain does not exist), EBADF.
[[nodiscard]] Xrcd* open_xrcd(Context& context, const ibv_xrcd_init_attr& attributes);
[[nodiscard]] int close_xrcd(Xrcd& xrcd);

/// Adds a shared receive queue to the XRC domain and assigns its SRQ number. Throws std::bad_alloc.
void add(Xrcd& xrcd, Srq& srq);
/// Removes a shared receive queue from its XRC domain, and from the XRC target queue pairs that use
/// it.
void remove(Srq& srq);

/// Makes an XRC target queue pair use the shared receive queue with this number, with its
/// completion queue and protection domain. Returns false if the XRC domain has no such shared
/// receive queue. Called when the target receives a request with this number.
[[nodiscard]] bool select_srq(Qp& target, std::uint32_t srq_number);

/// Removes the unpolled completions of an XRC target queue pair. Called before the target is reset
/// or freed.
void forget_completions(const Qp& target);

/// Creates a handle of an XRC target queue pair (IBV_QPT_XRC_RECV), which ibv_create_qp_ex() or
/// ibv_open_qp() returns to the program. The target is destroyed with its last handle. Returns null
/// if there is not enough memory.
[[nodiscard]] Qp* make_handle(Qp& target, Xrcd& xrcd, void* qp_context);
/// Implements ibv_open_qp(). On failure, returns null and sets errno: EINVAL (the attributes are
/// invalid, or the domain has no such target queue pair), ENOMEM.
[[nodiscard]] Qp* open_qp(Context& context, const ibv_qp_open_attr& attributes);

} // namespace softverbs
