// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

struct LevelZeroOptions {
    /// Index of the GPU on which allocate() allocates. The GPUs of all drivers are counted in the
    /// order of zeDriverGet and zeDeviceGet. The environment variable ZE_AFFINITY_MASK selects the
    /// GPUs that the process sees.
    int device = 0;
    /// The contexts (ze_context_handle_t) in which the program allocates memory. These contexts
    /// must outlive the exporter. According to the specification, a context can query only memory
    /// that was allocated in this context. With Intel's driver the list can be empty, because each
    /// context can query the memory of all contexts.
    std::vector<void*> contexts = {};
};

/// Returns the exporter "level_zero" for memory of GPUs. It loads the Level Zero loader
/// (libze_loader.so.1) at run time.
///
/// - **Memory.** Memory can be exported if it was allocated with a ze_external_memory_export_desc_t
///   of ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, as allocate() does. Other device memory can be
///   exported if the driver returns a dma-buf that begins with the allocation. Host memory
///   (zeMemAllocHost) can be exported if the driver returns a dma-buf for it. The export fails with
///   EOPNOTSUPP, and the error text has a remedy, for shared memory (which migrates), for memory
///   from a pool, and for a mapping of zeVirtualMemMap that is smaller than its physical memory.
/// - **Descriptors.** The dma-buf contains the whole allocation. The exported descriptor is a
///   duplicate, because the driver keeps its own descriptor.
/// - **Initialisation.** find() returns none in a process that has not loaded the loader. find()
///   and export_range() do not initialise Level Zero. availability() and allocate() initialise it
///   for all devices (zeInit(0)).
/// - **Contexts.** Level Zero answers queries only in a context. If Level Zero is initialised and
///   no context of LevelZeroOptions::contexts finds the memory, find() and export_range() create
///   one context for each driver that has a GPU. allocate() creates a context for the driver of its
///   GPU. These contexts are never destroyed, and use no device memory by themselves.
/// - **Generations.** Allocation::generation is the driver's identifier of the allocation
///   (ze_memory_allocation_properties_t::id). It is 0 with Intel's driver before 2021-09, whose
///   identifiers are addresses and can occur again.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_level_zero_exporter(
    const LevelZeroOptions& options = {});

} // namespace rdmabuf
