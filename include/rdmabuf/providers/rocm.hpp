// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

struct RocmOptions {
    /// The ordinal, among the GPUs that ROCR_VISIBLE_DEVICES leaves, of the one that allocate()
    /// takes memory from. Exporting asks the device that an address belongs to.
    int device = 0;
};

/// "rocm": memory of AMD GPUs, through ROCm's HSA runtime (libhsa-runtime64.so.1 of ROCm 5.6 or
/// newer), which is loaded at run time. Exports what hsa_amd_memory_pool_allocate made on a GPU.
/// HIP needs nothing more: the memory of hipMalloc is of such a pool. Not exported are host memory,
/// which is found as pinned, and memory of other processes. Memory mapped to addresses (hipMemMap)
/// is found from HSA AMD extension 1.12 on, page by page, and not exported: HSA does not say where
/// its mapping begins. HSA does not describe managed memory (hipMallocManaged), which is not found.
///
/// - **Mapping.** MappingKind::pcie falls back to standard, where the driver does not have it or
///   the BAR of the device is small: ExportedRange::mapping() says which it is.
/// - **Generations.** HSA has none: the exporter registers a callback for the end of each
///   allocation that it finds (hsa_amd_register_deallocation_callback). HSA takes callbacks for
///   memory of pools only. The generation of other memory (hipHostRegister, hipMemMap) is 0.
/// - **Initialisation.** availability() and allocate() initialise HSA. find() and export_range() do
///   not, but where they find memory they keep HSA from being shut down as long as the exporter,
///   its buffers or its ranges live. find() does nothing in a process that has not loaded
///   libhsa-runtime64.so.1.
/// - **Placement.** What a NIC reaches may be a copy in system memory, without an error: see
///   docs/registration.md.
///
/// src/inc/hsa_ext_amd.h of ROCR-Runtime.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_rocm_exporter(
    const RocmOptions& options = {});

} // namespace rdmabuf
