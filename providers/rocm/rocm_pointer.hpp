// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdmabuf/exporter.hpp>

#include "rocm/rocm_driver.hpp"

namespace rdmabuf::detail::rocm {

/// Holds the attributes of an address, as HSA reports them.
struct Pointer {
    std::uintptr_t address = 0;
    PointerType type = PointerType::unknown;
    /// The start address of the allocation; for PointerType::mapped and PointerType::reserved, the
    /// start of the page that contains `address`. A dma-buf can begin before this address, because
    /// several small allocations can share one dma-buf.
    std::uintptr_t base = 0;
    std::size_t length = 0;
    /// The device that holds the memory. The handle of `owner` is 0 if the device is not visible to
    /// this process.
    Agent owner;
};

/// Returns the attributes of @p address, or std::nullopt if the memory does not belong to HSA. Does
/// not initialise HSA.
/// @throws Error if the query failed
[[nodiscard]] std::optional<Pointer> find_pointer(const Driver& driver, std::uintptr_t address);
/// Returns the attributes of @p address, as find_pointer() does, but throws if the memory does not
/// belong to HSA.
/// @throws Error EFAULT if the memory does not belong to HSA, ENODEV if HSA is not initialised in
///         this process; otherwise the errno for the driver's status
[[nodiscard]] Pointer require_pointer(const Driver& driver, std::uintptr_t address);

/// Holds the attributes of an address, and the generation (a number that identifies the allocation)
/// of its memory.
struct Met {
    Pointer pointer;
    /// 0 if HSA does not report when the memory is freed.
    std::uint64_t generation = 0;
};

/// Returns the attributes of @p address and the generation (number) of the allocation. Both
/// describe the same allocation, even if other threads free and allocate memory during the call.
/// Returns std::nullopt if the memory does not belong to HSA. The caller must hold a Runtime, which
/// keeps HSA initialised.
[[nodiscard]] std::optional<Met> meet(const Driver& driver, std::uintptr_t address);
/// Calls meet() until it returns the attributes.
/// @throws Error EFAULT if the memory does not belong to HSA
[[nodiscard]] Met require_met(const Driver& driver, std::uintptr_t address);

[[nodiscard]] MemoryKind kind_of(const Driver& driver, const Pointer& pointer) noexcept;

} // namespace rdmabuf::detail::rocm
