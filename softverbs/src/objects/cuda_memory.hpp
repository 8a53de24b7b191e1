// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

/// The CUDA context of memory that the CPU cannot access, and a CUDA stream in which the CUDA
/// driver copies from and to this memory. Used for a dma-buf whose exporter, such as NVIDIA's
/// driver, does not support mmap(2). There is one object per CUDA context. It is never freed.
///
/// softverbs creates the stream. Like a NIC, the copies do not wait for work in the CUDA streams of
/// the program.
struct CudaMemory; // defined in cuda_memory.cpp

/// Returns the CudaMemory object for @p length bytes at the device address @p address. Returns null
/// if this is not CUDA device memory (managed memory is not), if the program does not use CUDA, if
/// the driver reports an error, or if no memory is left. Does not load the CUDA driver.
[[nodiscard]] const CudaMemory* find_cuda_memory(std::uint64_t address,
                                                 std::size_t length) noexcept;

/// Copies bytes from CUDA memory. Returns false if the driver reports an error, for example because
/// the memory was freed or its context was destroyed.
[[nodiscard]] bool read_cuda_memory(const CudaMemory& memory, const std::byte* from,
                                    std::span<std::byte> into) noexcept;
/// Like read_cuda_memory(), but copies bytes to CUDA memory.
[[nodiscard]] bool write_cuda_memory(const CudaMemory& memory, std::byte* to,
                                     std::span<const std::byte> bytes) noexcept;

} // namespace softverbs
