// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "rocm/rocm_driver.hpp"

namespace rdmabuf::detail::rocm {

/// Assigns a number (generation) to each allocation of HSA, because HSA does not number its
/// allocations. An allocation gets its number when an exporter first finds the allocation. The
/// number becomes invalid when HSA calls the deallocation callback freed(), which is before the
/// address of the allocation can be reused. No number is used twice.
///
/// The numbers are valid for one initialisation of HSA in one process. They are discarded when the
/// last Runtime of the process is destroyed.
class Generations {
  public:
    struct Known {
        std::uintptr_t base;
        std::uint64_t generation;
    };

    /// Returns the only object of this class in this process. The object is never destroyed,
    /// because HSA may call the deallocation callback freed() until the process ends.
    [[nodiscard]] static Generations& of_process();

    /// Adds one to the number of Runtime objects, which keep HSA initialised.
    void enter();
    /// Subtracts one from the number of Runtime objects. If none is left, discards the numbers of
    /// all allocations.
    void leave(const Driver& driver) noexcept;
    /// Returns the id of the process whose Runtime objects keep HSA initialised, or 0 if there is
    /// no Runtime. In a child process after fork(2), this is the id of the parent.
    [[nodiscard]] pid_t process() const noexcept { return process_; }

    /// Returns the only numbered allocation that can contain @p address: the allocation with the
    /// highest start address that is not above @p address. Returns std::nullopt if no allocation
    /// begins at or below @p address.
    [[nodiscard]] std::optional<Known> nearest(std::uintptr_t address) const;
    /// Returns true if the allocation at `known.base` still has the number `known.generation`. In
    /// this case, the allocation was not freed after it got this number.
    [[nodiscard]] bool still(const Known& known) const;
    /// Assigns a number to the allocation at @p base, and registers freed() as the callback that
    /// HSA calls when the allocation is freed. Does nothing if the allocation has a number.
    /// @return false if HSA does not accept the callback, for example for memory that is not from a
    ///         pool
    [[nodiscard]] bool watch(const Driver& driver, std::uintptr_t base);
    /// Discards the number of @p known, an allocation that was freed.
    void forget(const Known& known);

  private:
    static void freed(void* pointer, void* data) noexcept;

    std::atomic<pid_t> process_{0};
    mutable std::mutex mutex_;
    std::size_t holders_ = 0;
    std::uint64_t last_ = 0;
    std::map<std::uintptr_t, std::uint64_t> known_;
};

} // namespace rdmabuf::detail::rocm
