// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rdmabuf::tools::doctor {

/// The size of BAR1 of an NVIDIA GPU, through which RDMA devices access its memory, in bytes.
struct Bar1 {
    std::uint64_t total = 0;
    std::uint64_t free = 0;
};

/// Queries BAR1 of the GPU at a PCI address by libnvidia-ml.so.1. Returns nullopt if NVML is not
/// installed, or does not know the GPU.
[[nodiscard]] std::optional<Bar1> query_bar1(const std::string& pci_address);

} // namespace rdmabuf::tools::doctor
