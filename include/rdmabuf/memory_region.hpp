// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/region.hpp>

namespace rdmabuf {

struct MemoryRegionOptions {
    Access access = Access::local_write;
    /// What the NIC calls the first byte; by default its virtual address, or 0 with
    /// Access::zero_based.
    std::optional<std::uint64_t> iova = std::nullopt;
};

/// Registered host memory. The memory stays the caller's and must outlive the region.
/// ibv_reg_mr(3).
class RDMABUF_EXPORT MemoryRegion : public Region {
  public:
    /// @param address  the first byte. Needs no alignment.
    /// @param length   in bytes
    /// @throws Error EINVAL for a length of 0, remote write or atomics without local write, flags
    /// the
    ///         device refuses; ENOMEM above RLIMIT_MEMLOCK (the hint says so); EFAULT for memory
    ///         that is not there or is device memory, which DmaBufMR is for.
    MemoryRegion(const ProtectionDomain& pd, void* address, std::size_t length,
                 const MemoryRegionOptions& options = {});

    /// The whole address space of the process, also what is mapped later: implicit on-demand
    /// paging. No page is pinned; the NIC faults the pages that it accesses. The iova of a byte is
    /// its address, so that sge() takes an address as the offset, and rkey() reaches all memory of
    /// the process. ibv_reg_mr(3).
    ///
    ///     const MemoryRegion all = MemoryRegion::implicit_on_demand(pd);
    ///     qp.post_send(all.sge(reinterpret_cast<std::uintptr_t>(buffer), length));
    ///
    /// @param access  Access::on_demand is added
    /// @throws Error EOPNOTSUPP or EINVAL for a device without it (IBV_ODP_SUPPORT_IMPLICIT in
    ///         DeviceAttributes::odp_capabilities(); ConnectX has it), with this reason
    [[nodiscard]] static MemoryRegion implicit_on_demand(const ProtectionDomain& pd,
                                                         Access access = Access::local_write);

    /// The first byte of the memory; nullptr for implicit_on_demand().
    [[nodiscard]] void* address() const noexcept { return address_; }

  private:
    void* address_;
};

} // namespace rdmabuf
