// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

struct CudaOptions {
    /// The ordinal of the device that allocate() takes memory from, as CUDA_VISIBLE_DEVICES leaves
    /// it. Exporting asks the device that an address belongs to.
    int device = 0;
};

/// "cuda": memory of NVIDIA GPUs, through the driver's libcuda.so.1, which is loaded at run time.
/// Exports what cuMemAlloc and cuMemMap made: CUDA 11.7 or newer, and the open kernel modules. A
/// range may span several mappings of one reserved range. MappingKind::pcie falls back to
/// standard: ExportedRange::mapping() says which it is. find() describes the one mapping at the
/// address, find_range() all mappings that hold the range.
///
/// - **Initialisation.** find() does nothing in a process that has not loaded libcuda.so.1 or not
///   called cuInit, and creates no context. export_range() loads libcuda.so.1 and does not
///   initialise CUDA; for memory without a context (cuMemMap) it uses the primary context of the
///   device, and creates that for the time of the call if it does not exist. availability() and
///   allocate() initialise CUDA. None of them needs a current context, except for find() of mapped
///   memory where the program uses no primary context and the driver is older than CUDA 11.4
///   (ENODEV).
/// - **Drivers before CUDA 11.7** export nothing, but find() knows their memory, so that it is
/// never
///   registered as host memory.
///
/// Memory of cuMemAlloc is made to synchronise what cuMemcpy does
/// (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) when it is first exported, as GPUDirect RDMA demands. Mapped
/// memory (cuMemMap) has no such attribute: whoever owns its context sets CU_CTX_SYNC_MEMOPS.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_cuda_exporter(
    const CudaOptions& options = {});

/// Whom RDMA writes into a GPU's memory are to be visible to.
enum class CudaWriteScope : std::uint8_t { owner, all_devices };

/// Makes RDMA writes into the memory at @p address that have completed visible to work that is
/// given to the GPU from now on: cuFlushGPUDirectRDMAWrites, in the context of the memory.
/// @return false where the device orders them by itself and nothing had to be done
/// @throws Error EFAULT for an address that CUDA does not know, EOPNOTSUPP for a device that
///         cannot flush on behalf of the host
RDMABUF_EXPORT bool flush_cuda_writes(std::uintptr_t address,
                                      CudaWriteScope scope = CudaWriteScope::owner);

} // namespace rdmabuf
