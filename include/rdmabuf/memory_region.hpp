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
    /// The iova of the first byte: the address that work requests and peers use for this byte. The
    /// iova and the virtual address must be equal modulo the page size. The default is the virtual
    /// address, or 0 with Access::zero_based.
    std::optional<std::uint64_t> iova = std::nullopt;
};

/// A memory region of host memory. The caller owns the memory, and must not free the memory before
/// the region is destroyed. ibv_reg_mr(3).
class RDMABUF_EXPORT MemoryRegion : public Region {
  public:
    /// Registers host memory.
    /// @param address  a pointer to the first byte. With Access::zero_based, the pointer must be
    ///                 aligned to the page size. Without this flag, it needs no alignment.
    /// @param length   the length of the memory in bytes
    /// @throws Error
    ///   - EINVAL: a length of 0; remote write or remote atomic without local write; different page
    ///     offsets of iova and address; access flags that the device rejects
    ///   - ENOMEM: more pinned memory than RLIMIT_MEMLOCK permits (the error text has the limit)
    ///   - EFAULT: the memory is not mapped, is read-only while the access permits writes, or is
    ///     device memory, for which DmaBufMR must be used
    ///   - EBADF: @p pd was closed, released or moved from
    MemoryRegion(const ProtectionDomain& pd, void* address, std::size_t length,
                 const MemoryRegionOptions& options = {});

    /// Registers the whole address space of the process, including later mappings: implicit
    /// on-demand paging. No page is pinned; the NIC raises page faults for the pages that it
    /// accesses. The iova of a byte is its virtual address, so the offset parameter of sge() is an
    /// address. rkey() gives peers access to all memory of the process. ibv_reg_mr(3).
    ///
    ///     const MemoryRegion all = MemoryRegion::implicit_on_demand(pd);
    ///     qp.post_send(all.sge(reinterpret_cast<std::uintptr_t>(buffer), length));
    ///
    /// @param access  the permitted access; the function adds Access::on_demand
    /// @throws Error EOPNOTSUPP or EINVAL if the device has no implicit on-demand paging.
    ///         DeviceAttributes::odp_capabilities() then does not contain IBV_ODP_SUPPORT_IMPLICIT.
    ///         ConnectX NICs have implicit on-demand paging.
    [[nodiscard]] static MemoryRegion implicit_on_demand(const ProtectionDomain& pd,
                                                         Access access = Access::local_write);

    /// Returns a pointer to the first byte of the memory. Returns nullptr if implicit_on_demand()
    /// created the region.
    [[nodiscard]] void* address() const noexcept { return address_; }

  private:
    void* address_;
};

} // namespace rdmabuf
