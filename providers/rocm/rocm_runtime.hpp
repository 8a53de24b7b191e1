// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rocm/rocm_driver.hpp"

namespace rdmabuf::detail::rocm {

/// Keeps HSA initialised while this object exists. acquire() calls hsa_init, and the destructor
/// calls hsa_shut_down.
class Runtime {
  public:
    /// Initialises HSA, or adds a reference if HSA is already initialised.
    /// @return an error if HSA cannot be initialised
    [[nodiscard]] static Result<std::shared_ptr<const Runtime>> acquire(const Driver& driver);
    /// Returns true if this process was created with fork(2) by a process that had a Runtime. If
    /// so, this process cannot use HSA.
    [[nodiscard]] static bool is_parents() noexcept;

    ~Runtime();
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    [[nodiscard]] const Driver& driver() const noexcept { return *driver_; }

  private:
    explicit Runtime(const Driver& driver);

    const Driver* driver_;
};

/// Returns the type of an agent, or std::nullopt if the driver does not report the type.
[[nodiscard]] std::optional<DeviceType> type_of(const Driver& driver, Agent agent) noexcept;
/// Returns the PCI address of a GPU, for example "0000:3b:00.0". The result is empty if the agent
/// is not a GPU, or if the driver does not report the address.
[[nodiscard]] std::string pci_address(const Driver& driver, Agent agent);

/// Returns the GPUs, in the driver's order. HSA must be initialised.
[[nodiscard]] Result<std::vector<Agent>> list_gpus(const Driver& driver);
/// Returns an error if the driver cannot export dma-bufs, otherwise std::nullopt.
[[nodiscard]] std::optional<ErrorInfo> check_dmabufs(const Driver& driver);

/// Returns the pool from which memory on the GPU is allocated. @throws Error ENODEV if the GPU has
/// no such pool
[[nodiscard]] MemoryPool device_pool(const Driver& driver, Agent gpu);

} // namespace rdmabuf::detail::rocm
