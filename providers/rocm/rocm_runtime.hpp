// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

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

/// None for an agent that the driver does not know.
[[nodiscard]] std::optional<DeviceType> type_of(const Driver& driver, Agent agent) noexcept;
/// "0000:3b:00.0" of a GPU; empty for others, and where the driver does not tell.
[[nodiscard]] std::string pci_address(const Driver& driver, Agent agent);

/// The GPUs, in the driver's order. HSA is initialised.
[[nodiscard]] Result<std::vector<Agent>> list_gpus(const Driver& driver);
/// Why nothing can be exported, if nothing can.
[[nodiscard]] std::optional<ErrorInfo> check_dmabufs(const Driver& driver);

/// Where a GPU's own memory comes from. @throws Error ENODEV when it has none
[[nodiscard]] MemoryPool device_pool(const Driver& driver, Agent gpu);

} // namespace rdmabuf::detail::rocm
