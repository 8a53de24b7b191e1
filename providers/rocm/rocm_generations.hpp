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

/// HSA does not number its allocations. These numbers are ours: one is given to an allocation when
/// it is first met, and taken back when the driver says that it is being freed, which is before its
/// address can be given out again (hsa_amd_register_deallocation_callback). No number is given
/// twice.
///
/// All that is known here is of one initialisation of HSA in one process, so it is known for as
/// long as somebody holds a Runtime, and then forgotten.
class Generations {
  public:
    struct Known {
        std::uintptr_t base;
        std::uint64_t generation;
    };

    /// Never destroyed: the driver may call back late.
    [[nodiscard]] static Generations& of_process();

    /// One more that holds HSA, and one less; the last one forgets all.
    void enter();
    void leave(const Driver& driver) noexcept;
    /// The process that holds HSA; 0 when none does. A child sees that of its parent.
    [[nodiscard]] pid_t process() const noexcept { return process_; }

    /// The allocation that @p address belongs to if it belongs to any that is known here.
    [[nodiscard]] std::optional<Known> nearest(std::uintptr_t address) const;
    /// Whether the allocation is still the one that was known.
    [[nodiscard]] bool still(const Known& known) const;
    /// Gives the allocation at @p base a number, and has the driver tell its end.
    /// @return false when the driver does not do that, as for memory that is of no pool
    [[nodiscard]] bool watch(const Driver& driver, std::uintptr_t base);
    /// The allocation is no more.
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
