// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/region.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT DeallocMw {
    static constexpr const char* name = "ibv_dealloc_mw";
    static int call(ibv_mw* mw) noexcept;
};
} // namespace detail

enum class MemoryWindowType : std::uint8_t {
    /// A window of type 1 is bound with ibv_bind_mw(3). Peers can access the window through any
    /// queue pair of the protection domain.
    type_1 = IBV_MW_TYPE_1,
    /// A window of type 2 (2B) is bound with a work request. Only the peer of the queue pair that
    /// executed the bind request can access the window. This peer can also invalidate the window.
    type_2 = IBV_MW_TYPE_2,
};

/// The part of a region that peers can access through a memory window.
struct MemoryWindowBinding {
    /// The region, which must be registered with Access::memory_window_bind. If the window permits
    /// writes or atomics, the region also needs Access::local_write. The kernel does not permit
    /// memory_window_bind for regions of dma-bufs and device memory.
    const Region& region;
    /// The offset of the window in the region, in bytes.
    std::uint64_t offset = 0;
    /// The length of the window in bytes.
    std::uint64_t length = 0;
    /// The operations that the window permits to peers: a combination of remote_read, remote_write
    /// and remote_atomic. The default permits none of them. With Access::zero_based (type 2 only),
    /// peers use byte offsets from the beginning of the window as addresses.
    Access access = Access::local_read;

    /// Returns the address that peers use for the first byte of the window: 0 with
    /// Access::zero_based, otherwise the iova of this byte.
    [[nodiscard]] std::uint64_t remote_address() const noexcept {
        return has(access, Access::zero_based) ? 0 : region.iova() + offset;
    }
    /// Returns the arguments of the bind request. An assertion fails if the region was closed,
    /// released or moved from.
    [[nodiscard]] ibv_mw_bind_info native() const noexcept {
        assert(region.native() != nullptr && "the region was closed, released or moved from");
        return {.mr = region.native(),
                .addr = region.iova() + offset,
                .length = length,
                .mw_access_flags = static_cast<unsigned>(access)};
    }
};

/// A memory window: an rkey for a part of a memory region. Windows are bound and invalidated by
/// work requests, which are much faster than a registration. A region cannot be deregistered while
/// a window is bound to it (EBUSY). A MemoryWindow can be moved but not copied. It keeps its
/// protection domain alive. ibv_alloc_mw(3).
///
/// QueuePair::post_bind() binds windows of both types. A window of type 1 can be bound again at any
/// time; a binding with a length of 0 unbinds it. A window of type 2 must be invalidated before it
/// is bound again: by QueuePair::post_local_inv() on this side, or by QueuePair::post_send_inv() of
/// the peer.
///
/// The program can send the new rkey to the peer in a message that it posts after the bind request
/// on the same queue pair. To send the rkey over another connection, wait for the completion of the
/// bind request first.
///
///     MemoryWindow window(pd, MemoryWindowType::type_2);
///     const MemoryWindowBinding part{
///         .region = region, .offset = 4096, .length = 512, .access = Access::remote_write};
///     qp.post_bind(window, part).throw_if_failed();
///     send_to_peer(window.remote(part));
class RDMABUF_EXPORT MemoryWindow {
  public:
    /// Allocates a memory window.
    /// @throws Error
    ///   - EOPNOTSUPP, EINVAL: the device does not support memory windows, or windows of @p type
    ///   - ENOMEM: the number of windows would be above ibv_device_attr::max_mw
    ///   - EBADF: @p pd was closed, released or moved from
    MemoryWindow(const ProtectionDomain& pd, MemoryWindowType type);
    /// Takes ownership of a window that other code has allocated on @p pd.
    [[nodiscard]] static MemoryWindow adopt(const ProtectionDomain& pd, ibv_mw* window);
    /// Returns an object that uses @p window but does not own it. For a null pointer, the result is
    /// like an object that was closed.
    [[nodiscard]] static MemoryWindow borrow(ibv_mw* window);

    [[nodiscard]] MemoryWindowType type() const noexcept {
        return static_cast<MemoryWindowType>(checked()->type);
    }
    /// Returns the rkey of the window. QueuePair::post_bind() and set_rkey() change the rkey.
    [[nodiscard]] std::uint32_t rkey() const noexcept { return checked()->rkey; }
    /// Returns the rkey to use in the next bind request of a window of type 2. See set_rkey().
    [[nodiscard]] std::uint32_t next_rkey() const noexcept { return ibv_inc_rkey(rkey()); }
    /// Sets the rkey that rkey() returns. This function is needed in two cases. After a bind
    /// request was posted in a SendList or a WorkBatch, set the rkey of that request. After a bind
    /// request has completed with an error, set the rkey that the window had before the request.
    void set_rkey(std::uint32_t rkey) noexcept { checked()->rkey = rkey; }

    /// Returns the address, length and rkey with which a peer can access the window after the
    /// window was bound with @p binding.
    [[nodiscard]] RemoteRegion remote(const MemoryWindowBinding& binding) const noexcept {
        return {.address = binding.remote_address(), .length = binding.length, .rkey = rkey()};
    }

    /// Returns the protection domain on which the window was allocated.
    /// @throws Error EBADF if the window was closed
    [[nodiscard]] const ProtectionDomain& protection_domain() const {
        return handle_.get_deleter().parent<0>("MemoryWindow::protection_domain", "MemoryWindow");
    }
    [[nodiscard]] ibv_mw* native() const noexcept { return handle_.get(); }
    /// Returns the ibv_mw and gives up ownership: the caller must deallocate the ibv_mw. If it was
    /// borrowed, only its owner may deallocate it.
    [[nodiscard]] ibv_mw* release() noexcept { return handle_.release(); }
    /// Deallocates the window now. After an error, this object still owns the window.
    /// @throws Error with the errno value of ibv_dealloc_mw(3)
    void close() { detail::close_handle(handle_); }

  private:
    [[nodiscard]] ibv_mw* checked() const noexcept {
        assert(handle_ != nullptr && "the MemoryWindow was closed, released or moved from");
        return handle_.get();
    }

    using Handle = detail::unique_handle<ibv_mw, detail::DeallocMw, ProtectionDomain>;
    explicit MemoryWindow(Handle handle) noexcept : handle_(std::move(handle)) {}

    Handle handle_;
};

} // namespace rdmabuf
