// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

struct RocmOptions {
    /// Index of the GPU on which allocate() allocates. Only the GPUs that ROCR_VISIBLE_DEVICES
    /// makes visible to the process are counted, from 0. export_range() ignores this index and uses
    /// the GPU that holds the memory.
    int device = 0;
};

/// Returns the exporter "rocm" for memory of AMD GPUs. It loads ROCm's HSA runtime
/// (libhsa-runtime64.so.1 of ROCm 5.6 or newer) at run time. See src/inc/hsa_ext_amd.h of
/// ROCR-Runtime.
///
/// - **Memory.** Memory that hsa_amd_memory_pool_allocate allocated on a GPU can be exported. This
///   includes memory of hipMalloc, which uses such a pool. Host memory is found as
///   MemoryKind::pinned_host, and is not exported. Memory of other processes is not exported
///   either. Memory mapped to reserved addresses (hipMemMap, hipMallocAsync) is found one page at a
///   time, and is not exported, because HSA does not report where its mapping begins. Before HSA
///   AMD extension 1.12, HSA also does not report whether memory is mapped: all addresses that HSA
///   has reserved are found as memory of an unknown device. Managed memory (hipMallocManaged) is
///   not found, because HSA does not describe it.
/// - **Mapping.** If the driver does not support MappingKind::pcie, or the BAR of the device is
///   small, export_range() uses MappingKind::standard. ExportedRange::mapping() returns the kind
///   that was used.
/// - **Generations.** HSA does not number allocations. The exporter assigns a number to each
///   allocation that it finds, and registers a callback with which HSA reports that the allocation
///   is freed (hsa_amd_register_deallocation_callback). HSA accepts such callbacks only for memory
///   of pools. The generation of other memory (hipHostRegister, hipMemMap) is 0.
/// - **Initialisation.** availability() and allocate() initialise HSA. find() and export_range() do
///   not initialise HSA. After find() or export_range() has found memory, HSA stays initialised
///   while the exporter or its buffers exist. find() returns none in a process that has not loaded
///   libhsa-runtime64.so.1.
/// - **Placement.** On some kernels a NIC accesses a copy of the memory in system memory, and no
///   function reports an error: see docs/registration.md.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_rocm_exporter(
    const RocmOptions& options = {});

} // namespace rdmabuf
