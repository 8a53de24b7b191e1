// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

/// Memory of a CUDA device, that the CPU cannot reach and the CUDA driver of this process copies:
/// stands in for the mapping of a dma-buf whose exporter has no mmap(2), as NVIDIA's has none.
/// There is one of these for each CUDA context, and it stays.
///
/// The copies are in a stream of their own, which waits for none of the program's: a NIC does not,
/// either.
struct CudaMemory; // cuda_memory.cpp

/// That of @p length bytes at a device address. Null, when these are not memory of a CUDA device,
/// the program does not use CUDA, or its driver refuses. Loads no driver.
[[nodiscard]] const CudaMemory* find_cuda_memory(std::uint64_t address,
                                                 std::size_t length) noexcept;

/// False: the driver refused, since the memory was freed or the context destroyed.
[[nodiscard]] bool read_cuda_memory(const CudaMemory& memory, const std::byte* from,
                                    std::span<std::byte> into) noexcept;
[[nodiscard]] bool write_cuda_memory(const CudaMemory& memory, std::byte* to,
                                     std::span<const std::byte> bytes) noexcept;

} // namespace softverbs
