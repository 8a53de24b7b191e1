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
    /// Start address of the allocation. For PointerType::mapped: start of the page that holds the
    /// address. A dma-buf can begin before this address, because several small allocations can
    /// share one dma-buf.
    std::uintptr_t base = 0;
    std::size_t length = 0;
    /// The device that holds the memory. Its handle is 0 if this process does not see the device.
    Agent owner;
};

/// Returns the attributes of @p address, or std::nullopt if the memory is not HSA's. Does not
/// initialise HSA. @throws Error if the query failed
[[nodiscard]] std::optional<Pointer> find_pointer(const Driver& driver, std::uintptr_t address);
/// Returns the attributes of @p address, as find_pointer() does, but throws if the memory is not
/// HSA's.
/// @throws Error EFAULT if the memory is not HSA's, ENODEV if HSA is not initialised in this
///         process
[[nodiscard]] Pointer require_pointer(const Driver& driver, std::uintptr_t address);

/// Holds the attributes of an address, and the generation (number) of its allocation.
struct Met {
    Pointer pointer;
    /// 0 for memory whose deallocation HSA does not report.
    std::uint64_t generation = 0;
};

/// Returns the attributes of @p address with the matching generation, even if other threads free
/// and allocate memory during the call. Returns std::nullopt if the memory is not HSA's. The caller
/// must hold a Runtime, which keeps HSA initialised.
[[nodiscard]] std::optional<Met> meet(const Driver& driver, std::uintptr_t address);
/// Returns the result of meet(). @throws Error EFAULT if the memory is not HSA's
[[nodiscard]] Met require_met(const Driver& driver, std::uintptr_t address);

[[nodiscard]] MemoryKind kind_of(const Driver& driver, const Pointer& pointer) noexcept;

} // namespace rdmabuf::detail::rocm
