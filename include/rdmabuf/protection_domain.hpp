// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT DeallocPd {
    static constexpr const char* name = "ibv_dealloc_pd";
    static int call(ibv_pd* pd) noexcept;
    static void unimport(ibv_pd* pd) noexcept;
};
} // namespace detail

/// A protection domain. A queue pair can access only memory regions of its own protection domain.
/// Copies share the protection domain, and keep its Context alive. See ibv_alloc_pd(3).
class RDMABUF_EXPORT ProtectionDomain {
  public:
    /// Allocates a protection domain on the device of @p context.
    /// @throws Error ENOMEM if the device has no free protection domain; EBADF if @p context was
    ///         closed, released or moved from
    explicit ProtectionDomain(const Context& context);

    /// Takes ownership of @p pd, a protection domain that the program allocated on @p context.
    [[nodiscard]] static ProtectionDomain adopt(const Context& context, ibv_pd* pd);
    /// Imports a protection domain that another process has allocated. Destroying or closing this
    /// object only ends the import. The other process deallocates the protection domain, and must
    /// not do so before the objects that this process creates from it are destroyed.
    /// ibv_import_pd(3).
    /// @param context  a context that Context::import_descriptor() returned
    /// @param handle   the value of ibv_pd::handle in the other process
    /// @throws Error EOPNOTSUPP if the provider cannot import; ENOENT if the device file has no
    ///         such protection domain; EBADF if @p context was closed, released or moved from
    [[nodiscard]] static ProtectionDomain import_handle(const Context& context,
                                                        std::uint32_t handle);
    /// Returns an object that uses @p pd without owning it, for programs that create their own
    /// verbs objects and register memory with this library. The owner must not deallocate @p pd
    /// before this object and all objects created from this object are destroyed. For a null
    /// pointer, the result is like an object that was closed.
    [[nodiscard]] static ProtectionDomain borrow(ibv_pd* pd);

    [[nodiscard]] ibv_pd* native() const noexcept { return handle_.get(); }
    /// Returns the context on which the protection domain was allocated.
    /// @throws Error EBADF if the protection domain was closed, released or moved from
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("ProtectionDomain::context", "ProtectionDomain");
    }
    /// Returns the ibv_pd and gives up ownership: the caller must deallocate the ibv_pd; for one of
    /// import_handle(), call ibv_unimport_pd() instead. If the ibv_pd was borrowed, only its owner
    /// may deallocate it.
    [[nodiscard]] ibv_pd* release() noexcept { return handle_.release(); }
    /// Deallocates the protection domain now. After an error, this object still owns the protection
    /// domain.
    /// @throws Error EBUSY while copies of the protection domain, or objects created from it, exist
    void close() { handle_.close(); }

    friend bool operator==(const ProtectionDomain& a, const ProtectionDomain& b) noexcept {
        return a.native() == b.native();
    }

  protected:
    /// A handle of an ibv_pd, which keeps the Context alive. For a ParentDomain, its
    /// std::shared_ptr keeps the underlying protection domain and the thread domain alive. For
    /// other protection domains, its std::shared_ptr is null.
    using Handle =
        detail::shared_handle<ibv_pd, detail::DeallocPd, Context, std::shared_ptr<const void>>;
    explicit ProtectionDomain(Handle handle) noexcept : handle_(std::move(handle)) {}

    Handle handle_;
};

} // namespace rdmabuf
