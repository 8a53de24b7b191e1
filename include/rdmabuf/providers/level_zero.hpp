// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

struct LevelZeroOptions {
    /// Which GPU allocate() takes memory from: of all drivers' in the order of zeDriverGet and
    /// zeDeviceGet, as ZE_AFFINITY_MASK leaves them.
    int device = 0;
    /// Those of the program (ze_context_handle_t) that it allocates in. A context knows its own
    /// memory and no other, says the specification. They have to outlive the exporter. Intel's
    /// driver answers for the memory of all its contexts, also when none is named here.
    std::vector<void*> contexts = {};
};

/// "level_zero": memory of GPUs, through the loader's libze_loader.so.1, which is loaded at run
/// time. Exports memory that was allocated with a ze_external_memory_export_desc_t of
/// ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, as allocate() does it; other device memory where the
/// driver gives a dma-buf of just that allocation, and host memory (zeMemAllocHost) where it gives
/// one at all. Refuses shared memory, which moves, and what is cut from a pool: EOPNOTSUPP, with
/// what to do. The dma-buf is the whole allocation's, and its descriptor a duplicate: the driver
/// keeps its own.
///
/// find() does nothing in a process that has not loaded the loader. find() and export_range() do
/// not initialise Level Zero; availability() and allocate() do, for GPUs (ZE_INIT_FLAG_GPU_ONLY).
/// Level Zero answers only in a context: in a process where it is initialised all four make one
/// context for each driver that has a GPU, and keep it. Such a context allocates nothing on the
/// device.
///
/// A generation is the driver's identifier of an allocation (ze_memory_allocation_properties_t).
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_level_zero_exporter(
    const LevelZeroOptions& options = {});

} // namespace rdmabuf
