// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

/// CUDA device memory that the CPU cannot access. Every copy goes through the CUDA driver of this
/// process. It replaces the mapping of a dma-buf whose exporter does not implement mmap(2), such as
/// NVIDIA's. There is one object per CUDA context, and it is never freed.
///
/// The copies run in a stream of their own and do not wait for the program's streams. A NIC does
/// not wait for them either.
struct CudaMemory; // defined in cuda_memory.cpp

/// Finds the object for @p length bytes at a device address. Null when the range is not CUDA device
/// memory, when the program does not use CUDA, or when the driver reports an error. Does not load
/// the driver.
[[nodiscard]] const CudaMemory* find_cuda_memory(std::uint64_t address,
                                                 std::size_t length) noexcept;

/// Copy from and to CUDA memory. They return false if the driver reports an error, because the
/// memory was freed or the context was destroyed.
[[nodiscard]] bool read_cuda_memory(const CudaMemory& memory, const std::byte* from,
                                    std::span<std::byte> into) noexcept;
[[nodiscard]] bool write_cuda_memory(const CudaMemory& memory, std::byte* to,
                                     std::span<const std::byte> bytes) noexcept;

} // namespace softverbs
