// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rocm/rocm_driver.hpp"

namespace rdmabuf::detail::rocm {

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
