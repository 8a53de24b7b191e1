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

/// What a context says of an address of its own.
struct Pointer {
    std::uintptr_t address = 0;
    /// That knows it.
    Context context = nullptr;
    MemoryType type = MemoryType::unknown;
    /// Unique in this process: no allocation is given that of an earlier one.
    std::uint64_t id = 0;
    /// What the driver allocates in.
    std::size_t page_size = 0;
    /// Null for host memory, and for shared memory of no device in particular.
    Device device = nullptr;
};

/// Queries one context for @p address. @return a pointer of unknown type for memory that is not the
/// context's, or the result with which the driver failed to answer
[[nodiscard]] std::variant<Pointer, Result> query(const Driver& driver, Context context,
                                                  std::uintptr_t address);

/// The contexts in which addresses are looked up: first those that the program named, then those of
/// this library. Intel's driver answers for the memory of all contexts in each context. By the
/// specification a context knows only its own memory.
class Contexts {
  public:
    Contexts(const Driver& driver, std::span<const Context> named)
        : driver_(&driver), named_(named) {}

    /// None for memory that no context knows. @throws Error if no context knows it, and one of them
    /// or a driver failed to answer
    [[nodiscard]] std::optional<Pointer> find(std::uintptr_t address) const;
    /// @throws Error as find(), EFAULT where no context knows it, ENODEV when no context exists
    [[nodiscard]] Pointer require(std::uintptr_t address) const;

  private:
    /// @param failed  set to the first result with which a context failed to answer
    [[nodiscard]] std::optional<Pointer> find_in(std::span<const Context> contexts,
                                                 std::uintptr_t address, Result& failed) const;

    const Driver* driver_;
    std::span<const Context> named_;
};

/// The allocation that holds a pointer. None where there is none any more. @throws Error
[[nodiscard]] std::optional<Extent> extent_of(const Driver& driver, const Pointer& pointer);

} // namespace rdmabuf::detail::level_zero
