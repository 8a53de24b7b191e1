// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rdmabuf::tools::doctor {

/// A GPU that the CUDA driver lists.
struct CudaDevice {
    /// The CUDA device ordinal.
    int number = 0;
    /// In the format of sysfs; empty if the driver does not report it.
    std::string pci_address = {};
    /// The compute capability: major 9 and minor 0 for an H100.
    int major = 0;
    int minor = 0;
    /// CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED; nullopt if the driver does not know the attribute.
    std::optional<int> dmabuf = std::nullopt;
    std::optional<int> gpu_direct_rdma = std::nullopt;
    std::optional<int> integrated = std::nullopt;
    /// 1 if cuMemCreate() can allocate memory for RDMA.
    std::optional<int> virtual_memory_rdma = std::nullopt;
};

/// The devices of the CUDA driver of this process.
struct CudaDevices {
    /// The version of CUDA that the driver supports, 12040 for 12.4; 0 if it is not known.
    int driver_version = 0;
    std::vector<CudaDevice> devices = {};
    /// The reason why the devices are not known: the driver could not be initialised, or
    /// Check::cuda() did not query it. Empty if they are known.
    std::string reason = {};
};

/// Loads libcuda.so.1 and calls cuInit(), which can take seconds. Creates no context.
[[nodiscard]] CudaDevices query_cuda_devices();

/// The size in bytes of BAR1, through which RDMA devices access the memory of an NVIDIA GPU.
struct Bar1 {
    std::uint64_t total = 0;
    std::uint64_t free = 0;
};

/// Queries BAR1 of the GPU at a PCI address by libnvidia-ml.so.1. Returns nullopt if NVML is not
/// installed or fails, or does not know the GPU.
[[nodiscard]] std::optional<Bar1> query_bar1(const std::string& pci_address);

} // namespace rdmabuf::tools::doctor
