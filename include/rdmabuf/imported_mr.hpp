// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/region.hpp>

namespace rdmabuf {

/// The description of a memory region, with which another process can import the region. It
/// contains the iova and the access flags, because ibv_import_mr(3) does not return them.
struct SharedRegion {
    /// The value of ibv_mr::handle, which identifies the region within an open device file.
    std::uint32_t handle = 0;
    Access access = Access::local_read;
    /// The iova of the first byte of the region.
    std::uint64_t iova = 0;
    /// The length of the region in bytes.
    std::uint64_t length = 0;

    /// Returns the description of @p region.
    /// @throws Error EBADF if @p region was closed, released or moved from
    [[nodiscard]] RDMABUF_EXPORT static SharedRegion of(const Region& region);

    friend bool operator==(const SharedRegion&, const SharedRegion&) noexcept = default;
};

/// A memory region that another process has registered. Queue pairs of this process that belong to
/// the same protection domain can use the keys of the region. The import does not map the memory
/// into this process, so the CPU cannot access it.
///
/// The other process deregisters the region. Destroying or closing this object only ends the
/// import: the region stays registered. After the other process has deregistered the region,
/// requests that use its keys fail. ibv_import_mr(3).
class RDMABUF_EXPORT ImportedMR : public Region {
  public:
    /// Imports the memory region that @p region describes.
    /// @param pd      the protection domain of the region, imported with
    ///                ProtectionDomain::import_handle()
    /// @param region  the description that SharedRegion::of() returned in the other process
    /// @throws Error
    ///   - EOPNOTSUPP: the provider cannot import memory regions
    ///   - ENOENT: the device file has no region with SharedRegion::handle
    ///   - EPROTO: the imported region has another length than @p region
    ///   - EBADF: @p pd was closed, released or moved from
    ImportedMR(const ProtectionDomain& pd, const SharedRegion& region);
};

} // namespace rdmabuf
