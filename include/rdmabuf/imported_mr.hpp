// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/region.hpp>

namespace rdmabuf {

/// A memory region as another process needs it to import the region. ibv_import_mr(3) returns the
/// keys and the length; address and access come from the process that registered the region.
struct SharedRegion {
    /// ibv_mr::handle, which is unique in its device file.
    std::uint32_t handle = 0;
    Access access = Access::local_read;
    /// The address of the first byte as the NIC counts.
    std::uint64_t iova = 0;
    /// In bytes.
    std::uint64_t length = 0;

    /// @throws Error EBADF when @p region was closed, released or moved from
    [[nodiscard]] RDMABUF_EXPORT static SharedRegion of(const Region& region);

    friend bool operator==(const SharedRegion&, const SharedRegion&) noexcept = default;
};

/// A memory region that another process has registered. Queue pairs of this process that were
/// created in the same protection domain reach the memory by its keys; the CPU of this process does
/// not, unless the program shares the memory by other means.
///
/// The other process deregisters the region. Destroying or closing this object only ends the
/// import, and the region stays registered. After the other process has deregistered the region,
/// requests that use its keys fail. ibv_import_mr(3).
class RDMABUF_EXPORT ImportedMR : public Region {
  public:
    /// @param pd  of ProtectionDomain::import_handle(): that of the region
    /// @throws Error EOPNOTSUPP where the provider cannot import; ENOENT when the device file has
    /// no
    ///         such region; EPROTO when the region has another length than @p region says; EBADF
    ///         when @p pd was closed
    ImportedMR(const ProtectionDomain& pd, const SharedRegion& region);
};

} // namespace rdmabuf
