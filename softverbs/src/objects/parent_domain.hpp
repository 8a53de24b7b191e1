// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "objects/device.hpp"

namespace softverbs {

/// A thread domain. The program guarantees that only one thread at a time uses objects of the
/// domain. softverbs uses this guarantee only for completion queues, which become single-threaded
/// (Cq::single_threaded), except in the profile mlx5.
struct Td : ibv_td {
    Td() : ibv_td{} {}
    unsigned users = 0; // number of parent domains with this thread domain
};

/// A parent domain: a protection domain, with an optional thread domain and optional allocator
/// functions for the memory of queues.
struct ParentDomain : Pd {
    Td* td = nullptr;
    decltype(ibv_parent_domain_init_attr::alloc) alloc = nullptr;
    decltype(ibv_parent_domain_init_attr::free) free = nullptr;
    void* program_context = nullptr;

    [[nodiscard]] static ParentDomain* of(ibv_pd* pd) noexcept {
        return static_cast<Pd*>(pd)->is_parent_domain() ? static_cast<ParentDomain*>(pd) : nullptr;
    }
};

// These functions implement verbs with similar names, for example ibv_alloc_td(). The caller must
// hold Process::lock.
[[nodiscard]] Td* alloc_td(Context& context, const ibv_td_init_attr& attributes);
[[nodiscard]] int dealloc_td(Td& td);
[[nodiscard]] ParentDomain* alloc_parent_domain(Context& context,
                                                const ibv_parent_domain_init_attr& attributes);
/// Implements ibv_dealloc_pd() for a parent domain. Returns 0, or EBUSY if other objects use
/// the parent domain.
[[nodiscard]] int dealloc_parent_domain(ParentDomain& domain);

/// Memory for the work requests of a queue, which the allocator of the parent domain provides.
/// Empty if the queue has no parent domain, if the parent domain has no allocator, or if the
/// allocator returns IBV_ALLOCATOR_USE_DEFAULT.
///
/// obtain() and the destructor call functions of the program, which may call verbs. Therefore the
/// caller must not hold Process::lock.
class QueueMemory {
  public:
    /// Asks the allocator of the parent domain @p pd for @p size bytes of the resource @p type
    /// (MLX5DV_RES_TYPE_*). If there is no such allocator, or if it returns
    /// IBV_ALLOCATOR_USE_DEFAULT, returns 0 and this object stays empty. Returns ENOMEM if the
    /// allocator fails.
    [[nodiscard]] int obtain(ibv_pd* pd, std::size_t size, std::uint64_t type);
    /// Returns the next unused @p size bytes of the memory, aligned for all types. Returns an empty
    /// span if fewer bytes remain.
    [[nodiscard]] std::span<std::byte> take(std::size_t size) noexcept;

  private:
    struct Free {
        ParentDomain* domain;
        std::uint64_t type;
        void operator()(std::byte* memory) const;
    };
    std::unique_ptr<std::byte, Free> memory_{nullptr, Free{}};
    std::size_t size_ = 0;
    std::size_t used_ = 0;
};

/// Returns the number of bytes that QueueMemory::take(size) uses: the size, rounded up for
/// alignment.
[[nodiscard]] constexpr std::size_t aligned_size(std::size_t size) noexcept {
    constexpr std::size_t alignment = alignof(std::max_align_t);
    return (size + alignment - 1) / alignment * alignment;
}

} // namespace softverbs
