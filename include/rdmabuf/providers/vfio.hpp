// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// Describes pages of a BAR of a VFIO device.
struct VfioRegion {
    /// Index of the VFIO region, which is the number of the BAR: 0 to 5.
    std::uint32_t index = 0;
    /// Offset of the first page in the region, in bytes: a multiple of the page size.
    std::uint64_t offset = 0;
    /// Length of the pages in bytes, a multiple of the page size. If it is 0, the pages up to the
    /// end of the region are exported.
    std::size_t length = 0;
    /// Address at which the program has mapped the pages. The exporter finds the pages by this
    /// address. If it is 0, the program has not mapped the pages, and the exporter reserves an
    /// address range that stands for the pages. The CPU cannot access this range.
    std::uintptr_t address = 0;
};

/// The exporter "vfio" exports BARs of a device that the program drives through VFIO. The exporter
/// uses VFIO_DEVICE_FEATURE_DMA_BUF (Linux 6.19 with CONFIG_VFIO_PCI_DMABUF and CONFIG_PCI_P2PDMA).
/// It finds only pages that were passed to add().
///
/// The kernel revokes the dma-bufs when the device is reset or closed, or when its memory is
/// disabled. Existing memory regions then fail, and new registrations fail with ENODEV until the
/// memory is enabled again. A registration cache does not detect this: call
/// RegistrationCache::invalidate() for the pages. Only importers that support revocation can
/// therefore import these dma-bufs: mlx5, and irdma from Linux 7.1 on. Other importers fail with
/// EOPNOTSUPP. See drivers/vfio/pci/vfio_pci_dmabuf.c.
class RDMABUF_EXPORT VfioExporter : public Exporter {
  public:
    /// Exports pages of a BAR and adds them to the exporter, until the returned AddedRange is
    /// destroyed. The device stays open while the AddedRange or an ExportedRange of these pages
    /// exists.
    ///
    /// @throws Error
    ///   - EBADF, EMFILE: make_vfio_exporter() could not duplicate the descriptor: it was not open,
    ///     or the process had no free descriptors
    ///   - ENOTTY: the kernel does not support VFIO_DEVICE_FEATURE_DMA_BUF, or the descriptor is
    ///     not that of a VFIO device
    ///   - EOPNOTSUPP: the VFIO driver of the device does not support the export
    ///   - ENODEV: the index is not that of a BAR, or the device is being removed
    ///   - EINVAL: the range is not whole pages, `address` is not a multiple of the page size, or
    ///     the BAR does not exist or cannot be exported
    ///   - ERANGE: the range ends after the end of the region
    ///   - EEXIST: the address range overlaps an address range that was added before
    [[nodiscard]] virtual AddedRange add(const VfioRegion& region) = 0;
};

/// Returns a VfioExporter for one VFIO device.
/// @param device       descriptor of the device (VFIO_GROUP_GET_DEVICE_FD, or
///                     /dev/vfio/devices/vfioN). The exporter duplicates the descriptor, so the
///                     program can close its own descriptor. The device stays open until the
///                     exporter and all its ranges are destroyed
/// @param pci_address  PCI address of the device, "0000:3b:00.0"; may be empty
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<VfioExporter> make_vfio_exporter(
    int device, std::string pci_address = {});

} // namespace rdmabuf
