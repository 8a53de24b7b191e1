// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rdmabuf/added_range.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// Pages of a BAR of a VFIO device.
struct VfioRegion {
    /// Its VFIO region, which is the number of the BAR: 0 to 5.
    std::uint32_t index = 0;
    /// In bytes, from the begin of the region; whole pages.
    std::uint64_t offset = 0;
    /// In bytes, whole pages; 0 for all from the offset on.
    std::size_t length = 0;
    /// Where the program has mapped these pages, which is what they are known by then; 0 for pages
    /// that are not mapped. Those are given an address of their own, that cannot be touched.
    std::uintptr_t address = 0;
};

/// "vfio": BARs of a device that a program drives through VFIO, by VFIO_DEVICE_FEATURE_DMA_BUF
/// (Linux 6.19, CONFIG_VFIO_PCI_DMABUF, CONFIG_PCI_P2PDMA). It knows the regions it is told of.
///
/// Resetting the device, disabling its memory and closing it revoke what was exported: regions made
/// from it fail, and registering it is ENODEV until the memory is enabled again. So only importers
/// can have it that let go when told to: mlx5, and irdma from Linux 7.1 on; others answer
/// EOPNOTSUPP. drivers/vfio/pci/vfio_pci_dmabuf.c.
class RDMABUF_EXPORT VfioExporter : public Exporter {
  public:
    /// Exports these pages, and makes them known until the AddedRange is gone. Until then, and as
    /// long as an ExportedRange of them lives, the device stays open.
    ///
    /// @throws Error
    ///   - EBADF: the exporter was made of a descriptor that was not open
    ///   - ENOTTY: the kernel does not have the feature, or the descriptor is no VFIO device's
    ///   - EOPNOTSUPP: the VFIO driver of the device does not have it
    ///   - ENODEV: no BAR has that number, or the device is being removed
    ///   - EINVAL: not whole pages, or a BAR that cannot be shared
    ///   - ERANGE: past the end of the region
    ///   - EEXIST: the address overlaps one that is known already
    [[nodiscard]] virtual AddedRange add(const VfioRegion& region) = 0;
};

/// @param device       of VFIO (VFIO_GROUP_GET_DEVICE_FD, or /dev/vfio/devices/vfioN). Duplicated:
///                     the program may close its own, and the device stays open until the exporter
///                     and all it has exported are gone
/// @param pci_address  "0000:3b:00.0" of the device; may be empty
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<VfioExporter> make_vfio_exporter(
    int device, std::string pci_address = {});

} // namespace rdmabuf
