// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

struct HabanaOptions {
    /// Descriptor of a device that the program has opened: the result of hlthunk_open(), or
    /// synDeviceInfoV2::fd. Only one process at a time can have a device open. The program owns the
    /// descriptor, and must keep the device open while added or exported memory exists. If the
    /// value is -1, the exporter has no device, and add() fails with ENODEV.
    int fd = -1;
};

/// Describes device memory that the program has allocated.
struct HabanaMemory {
    /// Virtual address of the memory on the device.
    std::uintptr_t address = 0;
    /// Length in bytes.
    std::size_t length = 0;
    /// Start address of the driver's mapping that contains the memory: the result of
    /// hlthunk_device_memory_map(), or synDeviceInfoV2::globalHbmBaseAddress for memory of
    /// synDeviceMalloc(). If it is 0, the mapping begins at `address`.
    std::uintptr_t mapping = 0;
    /// Generation of the allocation. See ExternalMemory::generation.
    std::uint64_t generation = 0;
};

/// The exporter "habana" exports the memory of Intel Gaudi 2 and newer. It loads libhl-thunk.so at
/// run time, and exports with hlthunk_device_mapped_memory_export_dmabuf_fd(). See hlthunk.h of
/// HabanaAI/hl-thunk and drivers/accel/habanalabs/common/memory.c.
///
/// - **Addresses.** libhl-thunk.so does not report which memory contains an address. The exporter
///   finds only memory that the program adds. The memory is exported once, when it is added; find()
///   and export_range() do not call the driver.
/// - **Mappings.** Each dma-buf begins at the start of the mapping, because kernels before 6.7
///   ignore the offset of an export. These kernels also keep one size for all exports of a mapping:
///   the size of the last export. On such kernels, add the memory with the highest end address
///   last, or add the whole pool as one range.
/// - **Lifetime.** Keep the memory until all its regions are destroyed. A mapping that is exported
///   cannot be unmapped.
class RDMABUF_EXPORT HabanaExporter : public Exporter {
  public:
    /// Exports memory of the program's device and adds it to the exporter, until the returned
    /// AddedRange is destroyed. Destroy the AddedRange before the memory is freed, and invalidate
    /// registration caches as AddedRange describes.
    /// @throws Error
    ///   - EINVAL: the length or the address is 0, the end of the memory overflows 64 bits, the
    ///     memory is not inside its mapping, or the driver has no such mapping
    ///   - ENODEV: HabanaOptions::fd is not set, or is not the descriptor of a Gaudi 2 or newer
    ///   - EBADF: HabanaOptions::fd is not open
    ///   - EEXIST: the memory overlaps memory that was added before
    ///   - ERANGE: the dma-buf is shorter than the memory
    ///   - ENOENT: libhl-thunk.so cannot be loaded
    ///   - ENOSYS: libhl-thunk.so is too old
    ///   - the errno that the driver returned
    [[nodiscard]] virtual AddedRange add(const HabanaMemory& memory) = 0;
};

[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<HabanaExporter> make_habana_exporter(
    const HabanaOptions& options = {});

} // namespace rdmabuf
