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
/// The second parent is what the memory itself hangs on, where verbs cares (device memory).
using RegionHandle = unique_handle<ibv_mr, DeregMr, ProtectionDomain, std::shared_ptr<const void>>;
} // namespace detail

/// What Region::prefetch() does with the pages. ibv_advise_mr(3).
enum class Prefetch : std::uint8_t {
    /// Makes the pages present for the device, with permission to read.
    read = IBV_ADVISE_MR_ADVICE_PREFETCH,
    /// Makes the pages present for the device, with permission to read and write.
    write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
    /// Makes the pages present for the device that are already present for the CPU.
    present_pages = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
};

struct PrefetchOptions {
    Prefetch pages = Prefetch::read;
    /// Return only when the pages are present. Otherwise the kernel may prefetch them later, and
    /// reports no failure.
    bool wait = false;
};

/// What all registered memory has in common: keys, and addresses as the NIC counts them. Base of
/// MemoryRegion, DmaBufMR, DeviceMemoryMR and ImportedMR; holds its protection domain; moves only.
class RDMABUF_EXPORT Region {
  public:
    Region(Region&&) noexcept = default;
    Region& operator=(Region&&) noexcept = default;
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    /// The keys. Only of a region that was neither closed, released nor moved from (an assertion).
    [[nodiscard]] std::uint32_t lkey() const noexcept {
        assert(handle_ != nullptr && "the region was closed, released or moved from");
        return handle_->lkey;
    }
    [[nodiscard]] std::uint32_t rkey() const noexcept {
        assert(handle_ != nullptr && "the region was closed, released or moved from");
        return handle_->rkey;
    }
    /// The address of the first byte as the NIC counts: what scatter-gather entries and peers use.
    [[nodiscard]] std::uint64_t iova() const noexcept { return iova_; }
    /// In bytes.
    [[nodiscard]] std::size_t length() const noexcept { return length_; }
    [[nodiscard]] Access access() const noexcept { return access_; }

    /// A scatter-gather entry for @p length bytes from @p offset.
    /// @throws Error ERANGE when they do not lie inside the region; the hint has the numbers. EBADF
    ///         when the region was closed, released or moved from.
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::uint32_t length) const;
    /// A scatter-gather entry for the whole region.
    /// @throws Error ERANGE above 4 GiB - 1, which is the maximum of an entry; EBADF as above.
    [[nodiscard]] ibv_sge sge() const;

    /// What a peer needs to reach the whole region; slice() it for less. As rkey().
    [[nodiscard]] RemoteRegion remote() const noexcept {
        return {.address = iova_, .length = length_, .rkey = rkey()};
    }

    /// Maps pages for the device before it uses them, so that the first transfers do not wait for
    /// page faults. Only for regions whose pages are not pinned: with Access::on_demand, or of a
    /// dma-buf on a device that follows its moves (mlx5). ibv_advise_mr(3).
    /// @param offset  the first byte to prefetch
    /// @param length  in bytes
    /// @throws Error ERANGE when the range is not inside the region; EBADF when the region was
    ///         closed; EOPNOTSUPP where the provider or the device has no on-demand paging; ENOENT
    ///         for a region with pinned pages; EPERM for Prefetch::write without
    ///         Access::local_write; EFAULT when the pages cannot be made present
    void prefetch(std::size_t offset, std::size_t length,
                  const PrefetchOptions& options = {}) const;

    /// @throws Error EBADF when this was closed.
    [[nodiscard]] const ProtectionDomain& protection_domain() const {
        return handle_.get_deleter().parent<0>("Region::protection_domain", "region");
    }
    [[nodiscard]] ibv_mr* native() const noexcept { return handle_.get(); }
    /// The caller deregisters it from now on.
    [[nodiscard]] ibv_mr* release() noexcept { return handle_.release(); }
    /// Deregisters now. @throws Error what ibv_dereg_mr(3) says (EBUSY: memory windows are bound to
    /// it); the region stays registered and owned, and close() can be called again.
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
