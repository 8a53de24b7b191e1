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
    /// Of local_write, remote_write, remote_read, remote_atomic and relaxed_ordering only.
    Access access = Access::local_write;
    /// What the NIC calls the first byte. Must have the same offset into its page as the range has
    /// in the dma-buf. By default the buffer's own address, so that remote addresses are the
    /// pointers people know or, where no address is known, the offset.
    std::optional<std::uint64_t> iova = std::nullopt;
};

/// A registered range of a dma-buf: memory of a GPU, an accelerator, a display, another device.
///
/// The kernel takes its own reference to the dma-buf, so the descriptor may be closed and the
/// ExportedRange dropped right after. Several regions, on several protection domains, can be made
/// from one. ibv_reg_dmabuf_mr in ibv_reg_mr(3); drivers/infiniband/core/uverbs_std_types_mr.c.
class RDMABUF_EXPORT DmaBufMR : public Region {
  public:
    /// Refused here, with the errno the kernel would give (EINVAL) and the reason it would not: a
    /// length of 0; offset + length that overflows; iova and offset with different page offsets; a
    /// flag that dma-buf registration does not allow; remote write or atomics without local write.
    ///
    /// @throws Error for those, and from the kernel:
    ///   - EBADF: the descriptor is not open
    ///   - EINVAL: not a dma-buf, or a range past its end (the hint has both numbers)
    ///   - EOPNOTSUPP: the driver or its provider cannot import dma-bufs, or the exporter
    ///     refuses this importer
    ///   - EPROTONOSUPPORT: the kernel is older than 5.12
    ///   - ENODEV: the buffer was revoked; ENOMEM
    ///   - 524 (ENOTSUPP): the NVIDIA driver refuses this pair of devices (PCI topology)
    DmaBufMR(const ProtectionDomain& pd, const DmaBufRange& range,
             const DmaBufOptions& options = {});

    /// The range in the dma-buf begins here, in bytes.
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    /// The range begins here in the exporter's address space: a CPU or a device pointer. 0 where it
    /// is not known. (The mr->addr of verbs is no address for dma-bufs: it is the offset.)
    [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }

  private:
    std::uint64_t offset_;
    std::uintptr_t address_;
};

} // namespace rdmabuf
