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

/// What memory regions and queue pairs must share to work together. Copies share it, and it holds
/// its Context. ibv_alloc_pd(3).
class RDMABUF_EXPORT ProtectionDomain {
  public:
    /// @throws Error ENOMEM when the device has no more; EBADF when @p context was closed.
    explicit ProtectionDomain(const Context& context);

    /// Takes over a protection domain made elsewhere on @p context.
    [[nodiscard]] static ProtectionDomain adopt(const Context& context, ibv_pd* pd);
    /// Imports the protection domain with @p handle, which is ibv_pd::handle in the process that
    /// allocated it. That process deallocates it, after the objects that this process creates from
    /// it; destroying or closing this object only ends the import. ibv_import_pd(3).
    /// @param context  of Context::import_descriptor()
    /// @throws Error EOPNOTSUPP where the provider cannot import; ENOENT when the device file has
    /// no
    ///         such protection domain; EBADF when @p context was closed
    [[nodiscard]] static ProtectionDomain import_handle(const Context& context,
                                                        std::uint32_t handle);
    /// Uses one that somebody else deallocates, after everything made from this one is gone. This
    /// is how a transport that has its own verbs objects registers memory with this library.
    [[nodiscard]] static ProtectionDomain borrow(ibv_pd* pd);

    [[nodiscard]] ibv_pd* native() const noexcept { return handle_.get(); }
    /// @throws Error EBADF when this was closed, released or moved from.
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("ProtectionDomain::context", "ProtectionDomain");
    }
    /// The caller deallocates it from now on.
    [[nodiscard]] ibv_pd* release() noexcept { return handle_.release(); }
    /// @throws Error EBUSY while copies, or objects made from it, exist.
    void close() { handle_.close(); }

    friend bool operator==(const ProtectionDomain& a, const ProtectionDomain& b) noexcept {
        return a.native() == b.native();
    }

  protected:
    /// The second parent keeps the objects of a ParentDomain alive; otherwise it is null.
    using Handle =
        detail::shared_handle<ibv_pd, detail::DeallocPd, Context, std::shared_ptr<const void>>;
    explicit ProtectionDomain(Handle handle) noexcept : handle_(std::move(handle)) {}

    Handle handle_;
};

} // namespace rdmabuf
