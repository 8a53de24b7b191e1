// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>

#include <rdmabuf/access.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/remote_region.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT DeallocMw {
    static constexpr const char* name = "ibv_dealloc_mw";
    static int call(ibv_mw* mw) noexcept;
};
} // namespace detail

enum class MemoryWindowType : std::uint8_t {
    /// Bound by ibv_bind_mw(3). A peer reaches it through any queue pair of the protection domain.
    type_1 = IBV_MW_TYPE_1,
    /// Bound by a work request. A peer reaches it only through the queue pair on which it was bound
    /// (type 2B). Peers can invalidate it.
    type_2 = IBV_MW_TYPE_2,
};

/// The part of a region that a memory window opens to peers.
struct MemoryWindowBinding {
    /// Must have Access::memory_window_bind, and Access::local_write if the window permits writes
    /// or atomics. The kernel refuses memory_window_bind for dma-bufs and device memory.
    const Region& region;
    /// The offset of the window in the region, in bytes.
    std::uint64_t offset = 0;
    /// In bytes.
    std::uint64_t length = 0;
    /// What peers may do: remote_read, remote_write and remote_atomic. With zero_based (type 2
    /// only), remote addresses count from 0 at the beginning of the window.
    Access access = Access::local_read;

    /// The first byte of the window for peers.
    [[nodiscard]] std::uint64_t remote_address() const noexcept {
        return has(access, Access::zero_based) ? 0 : region.iova() + offset;
    }
    /// The region must not be closed, released or moved from (an assertion).
    [[nodiscard]] ibv_mw_bind_info native() const noexcept {
        assert(region.native() != nullptr && "the region was closed, released or moved from");
        return {.mr = region.native(),
                .addr = region.iova() + offset,
                .length = length,
                .mw_access_flags = static_cast<unsigned>(access)};
    }
};

/// An rkey for a part of a memory region. Binding and invalidating are work requests, so they are
/// much faster than a registration. Moves only; holds its protection domain. A region cannot be
/// deregistered while a window is bound to it (EBUSY). ibv_alloc_mw(3).
///
/// QueuePair::post_bind() binds windows of both types. A window of type 1 may be bound again at any
/// time; a binding with a length of 0 unbinds it. A window of type 2 must be invalidated before it
/// is bound again: by QueuePair::post_local_inv() on this side, or by QueuePair::post_send_inv() of
/// the peer.
///
/// A message that is posted after the bind request on the same queue pair may carry the new rkey to
/// the peer. On any other way, the rkey may only be sent when the bind request has completed.
///
///     MemoryWindow window(pd, MemoryWindowType::type_2);
///     const MemoryWindowBinding part{
///         .region = region, .offset = 4096, .length = 512, .access = Access::remote_write};
///     qp.post_bind(window, part).throw_if_failed("ibv_post_send");
///     send_to_peer(window.remote(part));
class RDMABUF_EXPORT MemoryWindow {
  public:
    /// @throws Error EOPNOTSUPP where the device has no memory windows; EINVAL or EOPNOTSUPP for a
    ///         type that it does not have; ENOMEM above its max_mw.
    MemoryWindow(const ProtectionDomain& pd, MemoryWindowType type);

    [[nodiscard]] MemoryWindowType type() const noexcept {
        return static_cast<MemoryWindowType>(checked()->type);
    }
    /// The rkey of the bind request that was posted last.
    [[nodiscard]] std::uint32_t rkey() const noexcept { return checked()->rkey; }
    /// The rkey for the next bind request of a window of type 2. See set_rkey().
    [[nodiscard]] std::uint32_t next_rkey() const noexcept { return ibv_inc_rkey(rkey()); }
    /// Sets the rkey of the window. Needed in two cases: after a bind request of a SendList or a
    /// WorkBatch was posted, set the rkey of this request; after a bind request has failed with an
    /// error completion, set the rkey that the window had before.
    void set_rkey(std::uint32_t rkey) noexcept { checked()->rkey = rkey; }

    /// What a peer needs to reach the memory, once @p binding is bound.
    [[nodiscard]] RemoteRegion remote(const MemoryWindowBinding& binding) const noexcept {
        return {.address = binding.remote_address(), .length = binding.length, .rkey = rkey()};
    }

    /// @throws Error EBADF when this was closed.
    [[nodiscard]] const ProtectionDomain& protection_domain() const {
        return handle_.get_deleter().parent<0>("MemoryWindow::protection_domain", "MemoryWindow");
    }
    [[nodiscard]] ibv_mw* native() const noexcept { return handle_.get(); }
    /// The caller deallocates it from now on.
    [[nodiscard]] ibv_mw* release() noexcept { return handle_.release(); }
    /// @throws Error what ibv_dealloc_mw(3) says; it stays owned.
    void close() { detail::close_handle(handle_); }

  private:
    [[nodiscard]] ibv_mw* checked() const noexcept {
        assert(handle_ != nullptr && "the MemoryWindow was closed, released or moved from");
        return handle_.get();
    }

    detail::unique_handle<ibv_mw, detail::DeallocMw, ProtectionDomain> handle_;
};

} // namespace rdmabuf
