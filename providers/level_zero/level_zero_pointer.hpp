// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "common/exported_memory.hpp"
#include "level_zero/level_zero_driver.hpp"

namespace rdmabuf::detail::level_zero {

/// Holds the attributes of an address, as one context reports them.
struct Pointer {
    std::uintptr_t address = 0;
    /// The context that reported the attributes.
    Context context = nullptr;
    MemoryType type = MemoryType::unknown;
    /// Identifies the buffer object of the allocation. Allocations of one pool share a buffer
    /// object. No later buffer object in this process gets the same id, except with Intel's driver
    /// before 2021-09, which reports the address as the id.
    std::uint64_t id = 0;
    /// Null for host memory, and for shared memory that is assigned to no device.
    Device device = nullptr;
};

/// Queries @p address in one context.
/// @return the attributes, with MemoryType::unknown for memory that the context does not report;
///         the driver's result if the query failed
[[nodiscard]] std::variant<Pointer, Result> query(const Driver& driver, Context context,
                                                  std::uintptr_t address);

/// Holds the contexts in which addresses are queried: first the contexts of the program, then those
/// of rdmabuf. By the specification, a context can query only memory that was allocated in it. With
/// Intel's driver, each context can query the memory of all contexts.
class Contexts {
  public:
    Contexts(const Driver& driver, std::span<const Context> named)
        : driver_(&driver), named_(named) {}

    /// Returns the attributes of @p address, or std::nullopt if no context reports the memory.
    /// @throws Error if no context reports the memory, and a query or the creation of a context has
    ///         failed
    [[nodiscard]] std::optional<Pointer> find(std::uintptr_t address) const;
    /// Returns the attributes of @p address, as find() does, but throws if no context reports the
    /// memory.
    /// @throws Error EFAULT if no context reports the memory, ENODEV if no context exists, or the
    ///         errors of find()
    [[nodiscard]] Pointer require(std::uintptr_t address) const;

  private:
    /// Queries the address in each context of @p contexts.
    /// @param failed  set to the driver's result if a query failed and @p failed was not set before
    [[nodiscard]] std::optional<Pointer> find_in(std::span<const Context> contexts,
                                                 std::uintptr_t address, Result& failed) const;

    const Driver* driver_;
    std::span<const Context> named_;
};

/// Returns true if the program has mapped the memory with zeVirtualMemMap.
/// @throws Error with the errno for the driver's result
[[nodiscard]] bool is_mapped(const Driver& driver, const Pointer& pointer);

/// Returns the extent of the allocation that holds a pointer.
/// @throws Error with the errno for the driver's result if the query failed
[[nodiscard]] Extent extent_of(const Driver& driver, const Pointer& pointer);

} // namespace rdmabuf::detail::level_zero
