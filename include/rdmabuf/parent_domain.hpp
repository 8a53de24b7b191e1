// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/protection_domain.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT DeallocTd {
    static constexpr const char* name = "ibv_dealloc_td";
    static int call(ibv_td* td) noexcept;
};
} // namespace detail

/// A thread domain: the program's promise that only one thread at a time uses the objects created
/// with it. The provider can then omit the locks of these objects, and give the thread domain a
/// doorbell register of its own if the device has enough of them. The provider does not check the
/// promise. A ParentDomain passes the thread domain to the objects that are created with it. Copies
/// share the thread domain, and keep its Context alive. ibv_alloc_td(3).
class RDMABUF_EXPORT ThreadDomain {
  public:
    /// Allocates a thread domain on the device of @p context.
    /// @throws Error EOPNOTSUPP if the provider has no thread domains; ENOMEM if the device has no
    ///         free thread domain; EBADF if @p context was closed, released or moved from
    explicit ThreadDomain(const Context& context);

    [[nodiscard]] ibv_td* native() const noexcept { return handle_.get(); }
    /// Returns the context on which the thread domain was allocated.
    /// @throws Error EBADF if the thread domain was closed, released or moved from
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("ThreadDomain::context", "ThreadDomain");
    }
    /// Returns the ibv_td and gives up ownership: the caller must deallocate the ibv_td.
    [[nodiscard]] ibv_td* release() noexcept { return handle_.release(); }
    /// Deallocates the thread domain now. After an error, this object still owns the thread domain.
    /// @throws Error EBUSY while copies of the thread domain, or parent domains that use it, exist
    void close() { handle_.close(); }

    friend bool operator==(const ThreadDomain& a, const ThreadDomain& b) noexcept {
        return a.native() == b.native();
    }

  private:
    using Handle = detail::shared_handle<ibv_td, detail::DeallocTd, Context>;

    Handle handle_;
};

struct ParentDomainOptions {
    /// The thread domain for the objects that are created with the parent domain; nullptr for no
    /// thread domain.
    const ThreadDomain* thread_domain = nullptr;
    /// The function that allocates memory for queues: see ibv_alloc_parent_domain(3). The function
    /// returns nullptr if no memory is left. It returns IBV_ALLOCATOR_USE_DEFAULT to let the
    /// provider allocate the memory. `alloc` and `free` must both be set, or both be nullptr.
    decltype(ibv_parent_domain_init_attr::alloc) alloc = nullptr;
    /// The function that frees memory that `alloc` returned.
    decltype(ibv_parent_domain_init_attr::free) free = nullptr;
    /// The value of the parameter pd_context of `alloc` and `free`. The memory behind this pointer
    /// must be valid until the parent domain and all objects created with it are destroyed.
    void* pd_context = nullptr;
};

/// A protection domain that passes a thread domain, or memory for queues, to the objects created
/// with it: queue pairs, shared receive queues, and completion queues
/// (ExtendedCompletionQueueOptions::parent_domain). The regions of the underlying protection domain
/// can be used by queue pairs of the parent domain. Copies share the parent domain, also copies of
/// type ProtectionDomain. A parent domain keeps its protection domain and thread domain alive.
/// ibv_alloc_parent_domain(3).
class RDMABUF_EXPORT ParentDomain : public ProtectionDomain {
  public:
    /// Allocates a parent domain on top of @p pd.
    /// @throws Error EOPNOTSUPP if the provider has no parent domains; EINVAL if only one of
    ///         `alloc` and `free` is set, or if the thread domain belongs to another context;
    ///         ENOMEM if no memory is left; EBADF if @p pd or the thread domain was closed,
    ///         released or moved from
    explicit ParentDomain(const ProtectionDomain& pd, const ParentDomainOptions& options = {});
    /// A parent domain cannot be created on top of another parent domain.
    ParentDomain(const ParentDomain& pd, const ParentDomainOptions& options) = delete;
};

} // namespace rdmabuf
