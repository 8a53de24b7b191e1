// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "objects/device.hpp"

namespace softverbs {

/// A thread domain. The program promises that only one thread at a time uses the objects in it.
/// softverbs does not use this promise, and only counts the parent domains that refer to the
/// object.
struct Td : ibv_td {
    Td() : ibv_td{} {}
    unsigned users = 0;
};

/// A parent domain: a protection domain with an optional thread domain and an optional allocator
/// for queue memory.
struct ParentDomain : Pd {
    Td* td = nullptr;
    decltype(ibv_parent_domain_init_attr::alloc) alloc = nullptr;
    decltype(ibv_parent_domain_init_attr::free) free = nullptr;
    void* program_context = nullptr;

    [[nodiscard]] static ParentDomain* of(ibv_pd* pd) noexcept {
        return static_cast<Pd*>(pd)->is_parent_domain() ? static_cast<ParentDomain*>(pd) : nullptr;
    }
};

// The functions below implement the verbs of the same name. The caller holds Process::lock; see
// memory.hpp.
[[nodiscard]] Td* alloc_td(Context& context, const ibv_td_init_attr& attributes);
[[nodiscard]] int dealloc_td(Td& td);
[[nodiscard]] ParentDomain* alloc_parent_domain(Context& context,
                                                const ibv_parent_domain_init_attr& attributes);
/// Frees a parent domain. Returns 0, or EBUSY if queues use it.
[[nodiscard]] int dealloc_parent_domain(ParentDomain& domain);

/// Memory for the rings of one queue, from the allocator of its parent domain. Empty when the queue
/// has no parent domain with an allocator, or when the allocator returns IBV_ALLOCATOR_USE_DEFAULT.
///
/// The allocator is a callback of the program and may call verbs, so obtain() and the destructor
/// must run without Process::lock.
class QueueMemory {
  public:
    QueueMemory() = default;
    QueueMemory(const QueueMemory&) = delete;
    QueueMemory& operator=(const QueueMemory&) = delete;
    ~QueueMemory();
    QueueMemory(QueueMemory&& other) noexcept { *this = std::move(other); }
    QueueMemory& operator=(QueueMemory&& other) noexcept {
        std::swap(domain_, other.domain_);
        std::swap(type_, other.type_);
        std::swap(memory_, other.memory_);
        std::swap(used_, other.used_);
        return *this;
    }

    /// Calls the allocator. Returns 0 or ENOMEM.
    [[nodiscard]] int obtain(ibv_pd* pd, std::size_t size, std::uint64_t type);
    /// Returns the next @p size bytes, aligned for any type. Empty when fewer bytes are left.
    [[nodiscard]] std::span<std::byte> take(std::size_t size) noexcept;

  private:
    ParentDomain* domain_ = nullptr;
    std::uint64_t type_ = 0;
    std::span<std::byte> memory_;
    std::size_t used_ = 0;
};

/// Number of bytes that take() uses for an object of @p size bytes.
[[nodiscard]] constexpr std::size_t aligned_size(std::size_t size) noexcept {
    constexpr std::size_t alignment = alignof(std::max_align_t);
    return (size + alignment - 1) / alignment * alignment;
}

} // namespace softverbs
