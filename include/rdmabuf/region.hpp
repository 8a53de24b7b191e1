// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdmabuf/access.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/remote_region.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT DeregMr {
    static constexpr const char* name = "ibv_dereg_mr";
    static int call(ibv_mr* mr) noexcept;
    static void unimport(ibv_mr* mr) noexcept;
};
/// The std::shared_ptr keeps the ibv_dm of a region of device memory alive. For a region of other
/// memory, the std::shared_ptr is null.
using RegionHandle = unique_handle<ibv_mr, DeregMr, ProtectionDomain, std::shared_ptr<const void>>;
} // namespace detail

/// Selects which pages Region::prefetch() makes present for the device, and the permission for
/// these pages. ibv_advise_mr(3).
enum class Prefetch : std::uint8_t {
    /// Makes the pages present for the device, with read permission.
    read = IBV_ADVISE_MR_ADVICE_PREFETCH,
    /// Makes the pages present for the device, with read and write permission.
    write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
    /// Makes only those pages present for the device that are already present for the CPU.
    present_pages = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
};

struct PrefetchOptions {
    Prefetch pages = Prefetch::read;
    /// If true, prefetch() returns when the pages are present. If false, the kernel can prefetch
    /// the pages after prefetch() has returned, and does not report a failure.
    bool wait = false;
};

/// The common base of MemoryRegion, DmaBufMR, DeviceMemoryMR and ImportedMR: the keys and the iova
/// of registered memory. A region holds its protection domain. A region can be moved but not
/// copied.
class RDMABUF_EXPORT Region {
  public:
    Region(Region&&) noexcept = default;
    Region& operator=(Region&&) noexcept = default;
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    /// Returns the lkey. Do not call this function after close(), release() or a move (an assertion
    /// checks this).
    [[nodiscard]] std::uint32_t lkey() const noexcept {
        assert(handle_ != nullptr && "the region was closed, released or moved from");
        return handle_->lkey;
    }
    /// Returns the rkey. Do not call this function after close(), release() or a move (an assertion
    /// checks this).
    [[nodiscard]] std::uint32_t rkey() const noexcept {
        assert(handle_ != nullptr && "the region was closed, released or moved from");
        return handle_->rkey;
    }
    /// Returns the iova: the address of the first byte of the region for scatter-gather entries and
    /// for remote operations.
    [[nodiscard]] std::uint64_t iova() const noexcept { return iova_; }
    /// Returns the length of the region in bytes.
    [[nodiscard]] std::size_t length() const noexcept { return length_; }
    [[nodiscard]] Access access() const noexcept { return access_; }

    /// Returns a scatter-gather entry for @p length bytes at @p offset in the region.
    /// @throws Error ERANGE if the bytes are not inside the region; Error::hint() contains the
    ///         offset, the length and the size of the region. EBADF if the region was closed,
    ///         released or moved from.
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::uint32_t length) const;
    /// Returns a scatter-gather entry for the whole region.
    /// @throws Error ERANGE if the region is longer than 4 GiB - 1, the maximum length of an entry;
    ///         EBADF if the region was closed, released or moved from
    [[nodiscard]] ibv_sge sge() const;

    /// Returns the address, length and rkey that a peer needs to access the region.
    /// RemoteRegion::slice() returns these values for a part of the region. Do not call this
    /// function after close(), release() or a move (an assertion checks this).
    [[nodiscard]] RemoteRegion remote() const noexcept {
        return {.address = iova_, .length = length_, .rkey = rkey()};
    }

    /// Makes the pages of a range present for the device, so that the first transfers do not wait
    /// for page faults. Call it only for regions whose pages are not pinned: regions with
    /// Access::on_demand, and dma-bufs on a device that follows the moves of a dma-buf (mlx5).
    /// ibv_advise_mr(3).
    /// @param offset  the offset of the first byte in the region, in bytes
    /// @param length  in bytes
    /// @throws Error ERANGE if the range is not inside the region; EBADF if the region was closed;
    ///         EOPNOTSUPP if the provider or the device has no on-demand paging; ENOENT if the
    ///         pages of the region are pinned; EPERM for Prefetch::write without
    ///         Access::local_write; EFAULT if the pages cannot be made present
    void prefetch(std::size_t offset, std::size_t length,
                  const PrefetchOptions& options = {}) const;

    /// Returns the protection domain of the region.
    /// @throws Error EBADF if the region was closed
    [[nodiscard]] const ProtectionDomain& protection_domain() const {
        return handle_.get_deleter().parent<0>("Region::protection_domain", "region");
    }
    [[nodiscard]] ibv_mr* native() const noexcept { return handle_.get(); }
    /// Returns the ibv_mr and gives up ownership: the caller must deregister the ibv_mr.
    [[nodiscard]] ibv_mr* release() noexcept { return handle_.release(); }
    /// Deregisters the region now. After an error, this object still owns the registered region,
    /// and close() can be called again.
    /// @throws Error with the errno value of ibv_dereg_mr(3): EBUSY while memory windows are bound
    ///         to the region
    void close() { detail::close_handle(handle_); }

  protected:
    Region(detail::RegionHandle handle, std::uint64_t iova, std::size_t length,
           Access access) noexcept
        : handle_(std::move(handle)), iova_(iova), length_(length), access_(access) {}
    ~Region() = default;

  private:
    detail::RegionHandle handle_;
    std::uint64_t iova_;
    std::size_t length_;
    Access access_;
};

} // namespace rdmabuf
