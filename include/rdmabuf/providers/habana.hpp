// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdmabuf/added_range.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

struct HabanaOptions {
    /// The device that the program has open, and no other process can: what hlthunk_open()
    /// returned, or synDeviceInfoV2::fd. Stays the program's, who keeps it open for as long as
    /// memory is added and exported. -1: none, and allocate() acquires one.
    int fd = -1;
};

/// Memory of the device that the program allocated itself.
struct HabanaMemory {
    /// As the device knows it: of Gaudi 2 and newer a virtual address, of Gaudi 1 one in its DRAM.
    std::uintptr_t address = 0;
    /// In bytes.
    std::size_t length = 0;
    /// Where the driver's mapping that holds it begins: what hlthunk_device_memory_map() returned,
    /// or synDeviceInfoV2::globalHbmBaseAddress for memory of synDeviceMalloc(). 0: at the address.
    /// Nothing for Gaudi 1.
    std::uintptr_t mapping = 0;
    /// As ExternalMemory::generation.
    std::uint64_t generation = 0;
};

/// "habana": memory of Intel Gaudi, through libhl-thunk.so, which is loaded at run time:
/// hlthunk_device_mapped_memory_export_dmabuf_fd() of Gaudi 2 and newer, and
/// hlthunk_device_memory_export_dmabuf_fd() of Gaudi 1. hlthunk.h of HabanaAI/hl-thunk;
/// drivers/accel/habanalabs/common/memory.c.
///
/// - **Addresses.** The library does not tell whose an address is, so this knows what it has made,
///   and what the program adds. Each is exported once, when it is made or added; find() and
///   export_range() ask nothing.
/// - **Mappings** are exported from their begin on, also where memory is further in: kernels before
///   6.7 ignore where else an export is to begin. They also have one size for all exports of a
///   mapping, that of the last: with such, add what ends last, or all of the pool, first and last.
/// - **Allocating.** libhl-thunk.so cannot copy. allocate() takes memory of libSynapse.so, which
///   can, and acquires the first free device for as long as there are buffers: synDeviceAcquire(),
///   synDeviceMalloc(), synMemCopyAsync().
/// - **Lifetime.** An ExportedRange keeps a buffer of allocate(). A region made from one does not:
///   keep the buffer for as long as its regions. A mapping that is exported cannot be unmapped.
class RDMABUF_EXPORT HabanaExporter : public Allocator {
  public:
    /// Makes memory of the program's device known until the AddedRange is gone, and exports it.
    /// @throws Error
    ///   - EINVAL: a length or an address of 0, ones that overflow, or begin before the mapping;
    ///     what the driver knows no mapping of, or that reaches past its end
    ///   - ENODEV, EBADF: the exporter has no device, or one that is none
    ///   - EEXIST: it overlaps memory that is known already
    ///   - ERANGE: the dma-buf is shorter than the memory
    ///   - ENOENT, ENOSYS: as availability() tells; or what the driver says
    [[nodiscard]] virtual AddedRange add(const HabanaMemory& memory) = 0;
};

[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<HabanaExporter> make_habana_exporter(
    const HabanaOptions& options = {});

} // namespace rdmabuf
