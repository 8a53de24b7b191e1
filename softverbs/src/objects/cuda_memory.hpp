// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

/// CUDA memory that the CPU cannot access. The CUDA driver of this process copies the data.
/// softverbs uses this if a dma-buf cannot be mapped, because its exporter, such as NVIDIA's, does
/// not support mmap(2). There is one object per CUDA context, which is never freed.
///
/// The copies use a stream of softverbs. They do not wait for work in streams of the program, as a
/// NIC does not wait for it.
struct CudaMemory; // defined in cuda_memory.cpp

/// Returns the object for @p length bytes at the device address @p address. Returns null if this is
/// not CUDA memory, if the program does not use CUDA, or if the driver reports an error. Does not
/// load the driver.
[[nodiscard]] const CudaMemory* find_cuda_memory(std::uint64_t address,
                                                 std::size_t length) noexcept;

/// Copy bytes from or to CUDA memory. They return false if the driver reports an error, for example
/// because the memory was freed or its context was destroyed.
[[nodiscard]] bool read_cuda_memory(const CudaMemory& memory, const std::byte* from,
                                    std::span<std::byte> into) noexcept;
[[nodiscard]] bool write_cuda_memory(const CudaMemory& memory, std::byte* to,
                                     std::span<const std::byte> bytes) noexcept;

} // namespace softverbs
