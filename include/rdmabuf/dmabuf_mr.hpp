// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exported_range.hpp>
#include <rdmabuf/region.hpp>

namespace rdmabuf {

struct DmaBufOptions {
    /// The access flags: a combination of local_write, remote_write, remote_read, remote_atomic and
    /// relaxed_ordering.
    Access access = Access::local_write;
    /// The iova of the first byte: the address that work requests and peers use for this byte. The
    /// iova and DmaBufRange::offset must be equal modulo the page size. The default is
    /// DmaBufRange::address, so that peers use the pointers of this program. If
    /// DmaBufRange::address is 0, the default is DmaBufRange::offset.
    std::optional<std::uint64_t> iova = std::nullopt;
};

/// A registered range of a dma-buf, such as memory of a GPU, an accelerator or another device.
///
/// The kernel holds its own reference to the dma-buf. So the program may close the descriptor or
/// destroy the ExportedRange after the constructor has returned. Several regions can be created
/// from one dma-buf, also on different protection domains. See ibv_reg_dmabuf_mr() in ibv_reg_mr(3)
/// and drivers/infiniband/core/uverbs_std_types_mr.c of Linux.
class RDMABUF_EXPORT DmaBufMR : public Region {
  public:
    /// Registers the range. The constructor does not take ownership of the descriptor.
    ///
    /// Some invalid arguments are checked before the kernel is called, and the error text has the
    /// reason: a length of 0; an overflow of offset + length; different page offsets of iova and
    /// offset; an access flag that ibv_reg_dmabuf_mr() does not accept; remote write or remote
    /// atomic without local write. The errno value is EINVAL, as from the kernel.
    ///
    /// @throws Error
    ///   - EINVAL: an argument listed above; the descriptor is not a dma-buf; the range ends after
    ///     the end of the dma-buf (the error text has both sizes)
    ///   - EACCES: the descriptor is open for reading only, and the access flags have local_write
    ///   - EBADF: the descriptor is not open, or @p pd was closed, released or moved from
    ///   - EOPNOTSUPP: the driver or its provider cannot import dma-bufs, or the exporter rejects
    ///     this importer
    ///   - EPROTONOSUPPORT: the kernel is older than 5.12
    ///   - ENODEV: the buffer was revoked
    ///   - ENOMEM: there is not enough memory for the region
    ///   - 524 (kernel_enotsupp): the exporter, such as the NVIDIA driver, rejects this pair of
    ///     devices because of the PCI topology
    DmaBufMR(const ProtectionDomain& pd, const DmaBufRange& range,
             const DmaBufOptions& options = {});
    /// Registers an exported range, which may be a temporary object.
    DmaBufMR(const ProtectionDomain& pd, const ExportedRange& range,
             const DmaBufOptions& options = {})
        : DmaBufMR(pd, static_cast<DmaBufRange>(range), options) {}

    /// Returns the offset of the range in the dma-buf, in bytes.
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    /// Returns the address of the range in the exporter's address space: a CPU or a device pointer,
    /// or 0 if the address is unknown. (ibv_mr::addr of a dma-buf region contains the offset, not
    /// this address.)
    [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }

  private:
    std::uint64_t offset_;
    std::uintptr_t address_;
};

} // namespace rdmabuf
