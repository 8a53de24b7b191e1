// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>

#include "rocm/rocm_driver.hpp"

namespace rdmabuf::detail::rocm {

/// HSA, initialised for as long as this lives: one hsa_init, and one hsa_shut_down.
class Runtime {
  public:
    /// Initialises HSA, unless it is. @return why it cannot be used
    [[nodiscard]] static Result<std::shared_ptr<const Runtime>> acquire(const Driver& driver);
    /// Whether this is the child of a process that held HSA: all of it is the parent's.
    [[nodiscard]] static bool is_parents() noexcept;

    ~Runtime();
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    [[nodiscard]] const Driver& driver() const noexcept { return *driver_; }

  private:
    explicit Runtime(const Driver& driver);

    const Driver* driver_;
};

} // namespace rdmabuf::detail::rocm
