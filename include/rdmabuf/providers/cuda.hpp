// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

struct CudaOptions {
    /// Index of the device on which allocate() allocates. The environment variable
    /// CUDA_VISIBLE_DEVICES selects the devices that the process sees, and their order.
    /// export_range() ignores this index and uses the device that holds the memory.
    int device = 0;
};

/// Returns the exporter "cuda" for memory of NVIDIA GPUs. It loads the driver's libcuda.so.1 at run
/// time. Exports need CUDA 11.7 or newer and the open kernel modules.
///
/// - **Memory.** Memory of cuMemAlloc and cuMemMap can be exported. Pinned host memory can be
///   exported only if the driver supports it. A range may span several mappings of one reserved
///   range. find() returns the one mapping that holds the address; find_range() returns all
///   mappings that hold the range.
/// - **Mapping.** If the driver or the platform does not support MappingKind::pcie, export_range()
///   uses MappingKind::standard. ExportedRange::mapping() returns the kind that was used.
/// - **Initialisation.** find() returns none in a process that has not loaded libcuda.so.1 or has
///   not called cuInit. It never creates a context. export_range() loads libcuda.so.1, but does not
///   initialise CUDA. For memory without a context (cuMemMap) it retains the primary context of the
///   device during the call, which creates that context if it does not exist. availability() and
///   allocate() initialise CUDA.
/// - **Current context.** Callers need no current context, with one exception. With a driver older
///   than CUDA 11.4, find() of mapped memory throws ENODEV if the device has no active primary
///   context and the calling thread has no current context.
/// - **Drivers before CUDA 11.7** cannot export. find() still finds their memory, so that it is
///   never registered as host memory.
/// - **Copies.** The first export of memory of cuMemAlloc sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, as
///   GPUDirect RDMA demands: cuMemcpy then returns only after the copy is complete. The attribute
///   is not set for mapped memory (cuMemMap), which has no such attribute, and for memory for which
///   the driver refuses it. Such memory is exported nevertheless; the program must set
///   CU_CTX_SYNC_MEMOPS on the context.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_cuda_exporter(
    const CudaOptions& options = {});

/// Selects the devices to which flush_cuda_writes() makes RDMA writes visible. With `owner`, this
/// is only the GPU that holds the memory. With `all_devices`, these are all CUDA devices.
enum class CudaWriteScope : std::uint8_t { owner, all_devices };

/// Makes completed RDMA writes into the memory at @p address visible to work that is submitted to
/// the GPU after this call. Calls cuFlushGPUDirectRDMAWrites in the context of the memory.
///
/// If a GPU has two paths to its memory (Allocation::c2c), the driver reports that no flush is
/// needed, and a flush has no effect. Writes by NICs that use different mappings of such memory
/// (MappingKind::standard and MappingKind::pcie) are then not ordered: read the memory back through
/// each NIC that has written it.
/// @return false if the driver reports that the device orders RDMA writes by itself, so that this
///         function did not flush
/// @throws Error EFAULT if @p address is not CUDA memory, EOPNOTSUPP if the device does not support
///         a flush by the host, ENODEV if CUDA is not initialised in this process, ENOENT if
///         libcuda.so.1 cannot be loaded, ENOSYS if it is older than CUDA 11.7
RDMABUF_EXPORT bool flush_cuda_writes(std::uintptr_t address,
                                      CudaWriteScope scope = CudaWriteScope::owner);

} // namespace rdmabuf
