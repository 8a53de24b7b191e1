// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/protection_domain.hpp>

namespace rdmabuf {

/// Access flags of a memory region or a memory window; combine flags with `|`. Local reads are
/// always permitted. See ibv_reg_mr(3).
enum class Access : unsigned {
    local_read = 0,
    local_write = IBV_ACCESS_LOCAL_WRITE,
    remote_write = IBV_ACCESS_REMOTE_WRITE,
    remote_read = IBV_ACCESS_REMOTE_READ,
    remote_atomic = IBV_ACCESS_REMOTE_ATOMIC,
    memory_window_bind = IBV_ACCESS_MW_BIND,
    /// Work requests and peers address a byte by its offset from the beginning of the region, not
    /// by its virtual address.
    zero_based = IBV_ACCESS_ZERO_BASED,
    /// On-demand paging: the pages are not pinned. The NIC raises a page fault when it accesses a
    /// page that is not present.
    on_demand = IBV_ACCESS_ON_DEMAND,
    /// The program guarantees that all pages of the region are huge pages. The NIC can then use
    /// larger address translations. Valid only together with on_demand.
    hugetlb = IBV_ACCESS_HUGETLB,
    /// Permits flush requests of a peer, which make the earlier writes of this peer globally
    /// visible. Peers post flush requests with WorkBatch::native(). Valid for host memory only. The
    /// value is IBV_ACCESS_FLUSH_GLOBAL of rdma-core 45.
    flush_global = 1U << 8U,
    /// Permits flush requests of a peer, which make the earlier writes of this peer persistent.
    /// Valid for host memory only. The value is IBV_ACCESS_FLUSH_PERSISTENT of rdma-core 45.
    flush_persistent = 1U << 9U,
    /// Permits PCIe relaxed ordering, which is faster on some systems. The bytes of one write may
    /// become visible in any order. For host memory the flag is optional: libibverbs drops the flag
    /// if the kernel does not support it.
    relaxed_ordering = IBV_ACCESS_RELAXED_ORDERING,
};

[[nodiscard]] constexpr Access operator|(Access a, Access b) noexcept {
    return static_cast<Access>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
[[nodiscard]] constexpr Access operator&(Access a, Access b) noexcept {
    return static_cast<Access>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
[[nodiscard]] constexpr Access operator~(Access a) noexcept {
    return static_cast<Access>(~static_cast<unsigned>(a));
}
constexpr Access& operator|=(Access& a, Access b) noexcept {
    return a = a | b;
}

/// Returns whether @p set contains every flag of @p flags.
[[nodiscard]] constexpr bool has(Access set, Access flags) noexcept {
    return (set & flags) == flags;
}
/// Returns whether @p set contains at least one flag of @p flags.
[[nodiscard]] constexpr bool has_any(Access set, Access flags) noexcept {
    return (set & flags) != Access::local_read;
}

/// All flags that a region needs for RDMA writes, RDMA reads and atomics of peers. The value
/// contains local_write, because verbs requires local_write for remote writes and remote atomics.
inline constexpr Access full_access =
    Access::local_write | Access::remote_write | Access::remote_read | Access::remote_atomic;

/// Returns the names of the flags joined by `|`, or "local_read" if no flag is set. All bits
/// without a name are appended together as one hexadecimal number.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(Access access);

/// The target of a one-sided operation: an address in the memory of a peer, and the rkey of this
/// memory.
struct RemoteAddress {
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
};

/// A range of a peer's memory for one-sided operations. The peer creates the object, for example
/// with remote() of its Region, Registration or MemoryWindow, and sends the result of encode().
struct RDMABUF_EXPORT RemoteRegion {
    /// The address of the first byte, an iova in the peer's region.
    std::uint64_t address = 0;
    /// The length of the range in bytes.
    std::uint64_t length = 0;
    std::uint32_t rkey = 0;

    /// Returns the part of the region with @p count bytes at @p offset; both parameters are in
    /// bytes.
    /// @throws Error ERANGE if the part is not inside the region; Error::hint() contains the
    ///         offset, the count and the length of the region
    [[nodiscard]] RemoteRegion slice(std::uint64_t offset, std::uint64_t count) const;

    /// Returns the address of the byte at @p offset. This function does not check the offset,
    /// because the peer's NIC checks the address.
    [[nodiscard]] constexpr RemoteAddress at(std::uint64_t offset) const noexcept {
        return {address + offset, rkey};
    }
    /* implicit */ constexpr operator RemoteAddress() const noexcept { return {address, rkey}; }

    /// The size in bytes of the result of encode().
    static constexpr std::size_t wire_size = 28;
    /// Returns the region in the wire format, which is little-endian and contains a version number.
    [[nodiscard]] std::array<std::byte, wire_size> encode() const noexcept;
    /// Decodes a region from the wire format. The bytes can come from an untrusted peer.
    /// @return the region, or an error: EMSGSIZE if the size is not wire_size, EPROTO if the bytes
    ///         are not a valid region, EPROTONOSUPPORT if the version is not supported
    [[nodiscard]] static Result<RemoteRegion> decode(std::span<const std::byte> bytes) noexcept;

    friend bool operator==(const RemoteRegion&, const RemoteRegion&) noexcept = default;
};

namespace detail {
struct RDMABUF_EXPORT DeregMr {
    static constexpr const char* name = "ibv_dereg_mr";
    static int call(ibv_mr* mr) noexcept;
    static void unimport(ibv_mr* mr) noexcept;
};
/// The std::shared_ptr keeps the ibv_dm of a region of device memory alive, or the DMA handle with
/// which the region was registered. For other regions, the std::shared_ptr is null.
using RegionHandle = unique_handle<ibv_mr, DeregMr, ProtectionDomain, std::shared_ptr<const void>>;
} // namespace detail

/// Selects which pages Region::prefetch() makes present for the device, and the permission for
/// these pages. See ibv_advise_mr(3).
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
/// of registered memory. A region keeps its protection domain alive. A region can be moved but not
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
    /// Access::on_demand, and dma-bufs on a device that does not pin them (mlx5). ibv_advise_mr(3).
    /// @param offset  the offset of the first byte in the region, in bytes
    /// @param length  in bytes
    /// @throws Error ERANGE if the range is not inside the region; EBADF if the region was closed,
    ///         released or moved from; EOPNOTSUPP if the provider or the device has no on-demand
    ///         paging; ENOENT if the pages of the region are pinned; EPERM for Prefetch::write
    ///         without Access::local_write; EFAULT if the pages cannot be made present
    void prefetch(std::size_t offset, std::size_t length,
                  const PrefetchOptions& options = {}) const;

    /// Returns the protection domain of the region.
    /// @throws Error EBADF if the region was closed
    [[nodiscard]] const ProtectionDomain& protection_domain() const {
        return handle_.get_deleter().parent<0>("Region::protection_domain", "region");
    }
    [[nodiscard]] ibv_mr* native() const noexcept { return handle_.get(); }
    /// Returns the ibv_mr and gives up ownership: the caller must deregister the ibv_mr; for the
    /// ibv_mr of an ImportedMR, call ibv_unimport_mr() instead. If the ibv_mr was borrowed, only
    /// its owner may deregister it.
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

struct MemoryRegionOptions {
    Access access = Access::local_write;
    /// The iova of the first byte: the address that work requests and peers use for this byte. The
    /// iova and the virtual address must be equal modulo the page size. The default is the virtual
    /// address, or 0 with Access::zero_based.
    std::optional<std::uint64_t> iova = std::nullopt;
};

/// A memory region of host memory. The caller owns the memory, and must not free the memory before
/// the region is destroyed. See ibv_reg_mr(3).
class RDMABUF_EXPORT MemoryRegion : public Region {
  public:
    /// Registers host memory.
    /// @param address  a pointer to the first byte. With Access::zero_based, the pointer must be
    ///                 aligned to the page size. Without this flag, it needs no alignment.
    /// @param length   the length of the memory in bytes
    /// @throws Error
    ///   - EINVAL: a length of 0; remote write or remote atomic without local write; different page
    ///     offsets of iova and address; access flags that the device rejects
    ///   - ENOMEM: more pinned memory than RLIMIT_MEMLOCK permits (the error text has the limit),
    ///     or the NIC has no more regions or translations
    ///   - EFAULT: the memory is not mapped, is read-only while the access permits writes, or is
    ///     device memory, for which DmaBufMR must be used
    ///   - EBADF: @p pd was closed, released or moved from
    MemoryRegion(const ProtectionDomain& pd, void* address, std::size_t length,
                 const MemoryRegionOptions& options = {});

    /// Takes ownership of a region that other code has registered on @p pd.
    /// @param options  the access and the iova with which @p mr was registered, which ibv_mr does
    ///                 not contain. The default iova is ibv_mr::addr, or 0 with Access::zero_based.
    ///                 For a region of a dma-buf, set the iova: there, ibv_mr::addr is not the
    ///                 iova.
    [[nodiscard]] static MemoryRegion adopt(const ProtectionDomain& pd, ibv_mr* mr,
                                            const MemoryRegionOptions& options = {});
    /// Returns an object that uses @p mr but does not own it. The owner must not deregister @p mr
    /// before this object is destroyed. For a null pointer, the result is like an object that was
    /// closed.
    /// @param options  as for adopt()
    [[nodiscard]] static MemoryRegion borrow(ibv_mr* mr, const MemoryRegionOptions& options = {});

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

    /// Returns a pointer to the first byte of the memory: the parameter of the constructor, or
    /// ibv_mr::addr after adopt() and borrow(). Returns nullptr if implicit_on_demand() created the
    /// region, or if the ibv_mr was null.
    [[nodiscard]] void* address() const noexcept { return address_; }

  private:
    MemoryRegion(detail::RegionHandle handle, void* address, std::size_t length,
                 const MemoryRegionOptions& options) noexcept;

    void* address_;
};

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
    ///   - EACCES: the descriptor is open for reading only, and the access flags have local_write;
    ///     or it is open for writing only
    ///   - EBADF: the descriptor is not open or was opened with O_PATH, or @p pd was closed,
    ///     released or moved from
    ///   - EOPNOTSUPP: the driver or its provider cannot import dma-bufs or refuses an access flag
    ///     (efa: remote_atomic), or the exporter rejects this importer
    ///   - EPROTONOSUPPORT: the kernel is older than 5.12
    ///   - ENODEV: the buffer was revoked
    ///   - ENOMEM: there is not enough memory for the region
    ///   - EPERM: the exporter permits no further import of the dma-buf, or no peer-to-peer access
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
