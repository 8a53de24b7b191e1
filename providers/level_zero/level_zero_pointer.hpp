// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "common/extent.hpp"
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

/// Asks one context for @p address. What is not the context's is a pointer of unknown type, or the
/// driver's refusal to say.
[[nodiscard]] std::variant<Pointer, Result> query(const Driver& driver, Context context,
                                                  std::uintptr_t address);

/// Where addresses are looked up: the contexts that the program named, then those of this library.
/// Intel's driver answers for all contexts in each; the specification says that a context knows no
/// memory but its own.
class Contexts {
  public:
    Contexts(const Driver& driver, std::span<const Context> named)
        : driver_(&driver), named_(named) {}

    [[nodiscard]] std::optional<Pointer> find(std::uintptr_t address) const;
    /// @throws Error EFAULT where none knows it, ENODEV when there are none to ask
    [[nodiscard]] Pointer require(std::uintptr_t address) const;

  private:
    [[nodiscard]] std::optional<Pointer> find_in(std::span<const Context> contexts,
                                                 std::uintptr_t address) const;

    const Driver* driver_;
    std::span<const Context> named_;
};

/// The allocation that holds a pointer. None where there is none any more. @throws Error
[[nodiscard]] std::optional<Extent> extent_of(const Driver& driver, const Pointer& pointer);

} // namespace rdmabuf::detail::level_zero
