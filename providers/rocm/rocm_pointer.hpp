// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdmabuf/exporter.hpp>

#include "rocm/rocm_driver.hpp"

namespace rdmabuf::detail::rocm {

/// What the driver says of an address of its own.
struct Pointer {
    std::uintptr_t address = 0;
    PointerType type = PointerType::unknown;
    /// The allocation; of PointerType::mapped only the page that holds the address. Small
    /// allocations share a dma-buf, which is not described here.
    std::uintptr_t base = 0;
    std::size_t length = 0;
    /// No agent for memory of a device that this process does not see.
    Agent owner;
};

/// The pointer at @p address, if it is HSA's. Does not initialise HSA.
[[nodiscard]] std::optional<Pointer> find_pointer(const Driver& driver, std::uintptr_t address);
/// @throws Error EFAULT when it is not, ENODEV when HSA is not initialised in this process
[[nodiscard]] Pointer require_pointer(const Driver& driver, std::uintptr_t address);

/// A pointer, and which allocation it was.
struct Met {
    Pointer pointer;
    /// 0 for memory whose end HSA does not report.
    std::uint64_t generation = 0;
};

/// The pointer at @p address and its generation, which belong together whatever other threads free
/// and allocate. The caller holds a Runtime.
[[nodiscard]] std::optional<Met> meet(const Driver& driver, std::uintptr_t address);
/// @throws Error EFAULT when there is none
[[nodiscard]] Met require_met(const Driver& driver, std::uintptr_t address);

[[nodiscard]] MemoryKind kind_of(const Driver& driver, const Pointer& pointer) noexcept;

} // namespace rdmabuf::detail::rocm
