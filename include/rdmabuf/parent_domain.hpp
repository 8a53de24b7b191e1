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

/// The promise that only one thread at a time uses the objects created with this thread domain. The
/// provider then needs no locks for them, and gives queue pairs their own doorbell register where
/// it has one. The program keeps the promise by itself: the provider does not check it. Objects are
/// created with a thread domain through a ParentDomain. Copies share it, and it holds its Context.
/// ibv_alloc_td(3).
class RDMABUF_EXPORT ThreadDomain {
  public:
    /// @throws Error EOPNOTSUPP where the provider has no thread domains; ENOMEM when the device
    /// has
    ///         no more; EBADF when @p context was closed
    explicit ThreadDomain(const Context& context);

    [[nodiscard]] ibv_td* native() const noexcept { return handle_.get(); }
    /// @throws Error EBADF when this was closed, released or moved from.
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("ThreadDomain::context", "ThreadDomain");
    }
    /// The caller deallocates it from now on.
    [[nodiscard]] ibv_td* release() noexcept { return handle_.release(); }
    /// @throws Error EBUSY while copies, or parent domains made with it, exist.
    void close() { handle_.close(); }

    friend bool operator==(const ThreadDomain& a, const ThreadDomain& b) noexcept {
        return a.native() == b.native();
    }

  private:
    using Handle = detail::shared_handle<ibv_td, detail::DeallocTd, Context>;

    Handle handle_;
};

struct ParentDomainOptions {
    /// The thread domain of objects created with the parent domain; nullptr for none.
    const ThreadDomain* thread_domain = nullptr;
    /// Allocates the memory of queues: a function as in ibv_alloc_parent_domain(3). It returns
    /// nullptr for ENOMEM, or IBV_ALLOCATOR_USE_DEFAULT. Either both functions are set or none.
    decltype(ibv_parent_domain_init_attr::alloc) alloc = nullptr;
    /// Frees what `alloc` returned.
    decltype(ibv_parent_domain_init_attr::free) free = nullptr;
    /// The argument pd_context of both functions. It must be valid until the parent domain and all
    /// objects created with it are destroyed.
    void* pd_context = nullptr;
};

/// A protection domain that gives a thread domain, or memory for queues, to the objects created
/// with it: queue pairs, shared receive queues, and completion queues by
/// ExtendedCompletionQueueOptions::parent_domain. Keys of regions are those of the underlying
/// protection domain, so queue pairs of a parent domain use the regions of that domain. Copies
/// share it, also copies as ProtectionDomain, and it holds its protection domain and thread domain.
/// ibv_alloc_parent_domain(3).
class RDMABUF_EXPORT ParentDomain : public ProtectionDomain {
  public:
    /// @throws Error EOPNOTSUPP where the provider has no parent domains; EINVAL when only one of
    ///         the functions is set, or for a thread domain of another context; ENOMEM; EBADF when
    ///         @p pd or the thread domain was closed
    explicit ParentDomain(const ProtectionDomain& pd, const ParentDomainOptions& options = {});
    /// A parent domain has no parent domain.
    ParentDomain(const ParentDomain& pd, const ParentDomainOptions& options) = delete;
};

} // namespace rdmabuf
