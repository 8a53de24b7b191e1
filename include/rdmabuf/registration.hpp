// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/dma_handle.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/registered_memory.hpp>
#include <rdmabuf/registration_trail.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/topology.hpp>

namespace rdmabuf {

/// The registration paths that may be used, in the order in which they are tried. For an empty
/// list, the order is dmabuf, host. For an empty list and managed memory, the order is dmabuf,
/// on_demand.
class RDMABUF_EXPORT PathOrder {
  public:
    static constexpr std::size_t most = 5;

    constexpr PathOrder() noexcept = default;
    /// Creates a list of paths.
    /// @throws Error EINVAL for a path that is listed twice
    /* implicit */ PathOrder(std::initializer_list<RegistrationPath> paths);

    [[nodiscard]] constexpr bool empty() const noexcept { return count_ == 0; }
    [[nodiscard]] std::span<const RegistrationPath> paths() const noexcept {
        return {paths_.data(), count_};
    }
    [[nodiscard]] bool has(RegistrationPath path) const noexcept;

  private:
    std::array<RegistrationPath, most> paths_{};
    std::size_t count_ = 0;
};

struct RegistrationOptions {
    /// The registration paths to try. Device memory is never registered by the path `host`. This
    /// path is for memory that belongs to no exporter, and for host memory that a device's driver
    /// has pinned.
    PathOrder paths = {};
    /// The access flags of the registration. The dma-buf paths accept only local_write,
    /// remote_write, remote_read, remote_atomic and relaxed_ordering.
    Access access = Access::local_write;
    /// If true, Access::relaxed_ordering is added to `access`: the bytes of one write may then
    /// become visible in any order.
    bool relaxed_ordering = false;
    /// True if the caller guarantees that the memory is device memory. The registration of a host
    /// pointer then fails with EFAULT.
    bool device_memory = false;
    /// The iova of the first byte; by default the address of this byte. The iova must be equal to
    /// this address modulo the page size. On the dma-buf paths, the iova must instead be equal to
    /// the offset of the byte in the dma-buf, modulo the page size.
    std::optional<std::uint64_t> iova = std::nullopt;
    /// The topology of the machine, with which the mapping for each NIC is selected by the NIC's
    /// path to the memory. If it is nullptr, the mapping is selected by the type of the NIC. Call
    /// Topology::query_data_direct() first for NICs that could have a data-direct function. The
    /// topology is not owned, and is read only during the call. For a RegistrationCache, set
    /// RegistrationCacheOptions::topology instead.
    const Topology* topology = nullptr;
    /// The mapping that is exported on the dma-buf paths. By default the mapping is selected for
    /// each NIC, as docs/registration.md describes. If the NIC refuses this mapping with
    /// EOPNOTSUPP, EINVAL or 524 (the kernel's ENOTSUPP), the next mapping is tried. A value set
    /// here is used for all NICs, and no other mapping is tried. Set MappingKind::pcie with the
    /// path dmabuf only for NICs that can use it (EFA). On other NICs the registration may succeed,
    /// and remote operations fail later.
    std::optional<MappingKind> mapping = std::nullopt;
    /// The DMA handle with TLP processing hints for the NIC's accesses. The paths
    /// dmabuf_data_direct and on_demand cannot use a DMA handle. The handle is not owned, and is
    /// read only during the call.
    const DmaHandle* dma_handle = nullptr;
    /// The maximum number of threads that register at the same time, including the calling thread.
    /// With 1, no thread is created. With 0, a call that registers 1 MiB or more on a NIC uses one
    /// thread for each NIC, but at most 16; other calls create no thread. If there are more threads
    /// than NICs, several chunks or ranges are registered on one NIC at the same time. Only the
    /// calling thread calls exporters. All created threads end before the call returns. The result,
    /// the trail and errors do not depend on the number of threads.
    unsigned threads = 0;
    /// The list that receives all attempts of the registration, also if the registration fails;
    /// nullptr if the attempts are not needed. The list is not owned.
    Trail* trail = nullptr;
};

/// A range of memory to register, for register_ranges().
struct AddressRange {
    /// The CPU or device address of the first byte.
    std::uintptr_t address = 0;
    /// The length of the range in bytes.
    std::size_t length = 0;
};

/// Memory that is registered on one or several protection domains: the result of register_memory().
/// A Registration holds the protection domains. It does not own the memory, which the caller must
/// not free before the Registration is closed or destroyed.
class Registration : public RegisteredMemory {
  public:
    /// Returns the number of protection domains. The functions below have the parameter @p i: the
    /// position of a protection domain in the list that was passed to register_memory().
    [[nodiscard]] std::size_t size() const noexcept { return set().regions.size(); }
    /// Returns protection domain @p i.
    /// @throws Error EBADF if the registration was closed
    [[nodiscard]] const ProtectionDomain& protection_domain(std::size_t i = 0) const {
        return set().regions[i].protection_domain();
    }

    /// Returns the lkey on protection domain @p i.
    /// @throws Error ENODEV if the memory was revoked; EBADF if the registration was closed
    [[nodiscard]] std::uint32_t lkey(std::size_t i = 0) const {
        return usable(i, "Registration::lkey").lkey();
    }
    /// Returns the rkey on protection domain @p i.
    /// @throws Error for the same reasons as lkey()
    [[nodiscard]] std::uint32_t rkey(std::size_t i = 0) const {
        return usable(i, "Registration::rkey").rkey();
    }
    /// Returns a scatter-gather entry for @p length bytes at @p offset in the memory, for
    /// protection domain @p i.
    /// @throws Error for the same reasons as lkey(), and ERANGE if the bytes are not inside the
    ///         memory; Error::hint() contains the offset, the length and the size of the memory
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::uint32_t length, std::size_t i = 0) const {
        return usable(i, "Registration::sge").sge(offset, length);
    }
    /// Returns the iova, length and rkey that a peer needs to access the memory through protection
    /// domain @p i.
    /// @throws Error for the same reasons as lkey()
    [[nodiscard]] RemoteRegion remote(std::size_t i = 0) const {
        return usable(i, "Registration::remote").remote();
    }

    /// Returns the ibv_mr on protection domain @p i; nullptr if it was deregistered or released.
    [[nodiscard]] ibv_mr* native(std::size_t i = 0) const noexcept {
        return set().regions[i].native();
    }
    /// Returns the ibv_mr on protection domain @p i and gives up ownership: the caller must
    /// deregister this ibv_mr.
    [[nodiscard]] ibv_mr* release(std::size_t i = 0) noexcept { return set().regions[i].release(); }

  private:
    explicit Registration(std::unique_ptr<detail::RegisteredSet> made) noexcept
        : RegisteredMemory(std::move(made)) {}
    friend Registration register_memory(std::span<const ProtectionDomain> pds,
                                        const Resolver& resolver, std::uintptr_t address,
                                        std::size_t length, const RegistrationOptions& options);
    friend std::vector<Registration> register_ranges(std::span<const ProtectionDomain> pds,
                                                     const Resolver& resolver,
                                                     std::span<const AddressRange> ranges,
                                                     const RegistrationOptions& options);
};

/// Registers the @p length bytes at @p address on all protection domains of @p pds, for any type of
/// memory. The function finds the exporter of the memory in @p resolver, then tries the
/// registration paths in order, until one path succeeds on all protection domains. On the dma-buf
/// paths, it exports one dma-buf for each mapping that a NIC needs (for each NIC, if
/// Allocation::single_import is set), registers it on these NICs, and returns the descriptor to the
/// exporter before the call returns. Before it tries the next path, it deregisters all regions of
/// the previous path.
///
/// @throws Error if no path succeeds. Error::hint() is the trail (list) of all attempts. The errno
///         is that of the first attempt in which a driver or verbs was called. EINVAL before the
///         first attempt for a length of 0, a range that overflows, an empty @p pds, and options
///         that contradict each other. A NIC refuses a range that is longer than it can register at
///         once (EINVAL): see ChunkedRegion.
[[nodiscard]] RDMABUF_EXPORT Registration register_memory(std::span<const ProtectionDomain> pds,
                                                          const Resolver& resolver,
                                                          std::uintptr_t address,
                                                          std::size_t length,
                                                          const RegistrationOptions& options = {});
/// This overload registers memory on one protection domain.
[[nodiscard]] inline Registration register_memory(const ProtectionDomain& pd,
                                                  const Resolver& resolver, std::uintptr_t address,
                                                  std::size_t length,
                                                  const RegistrationOptions& options = {}) {
    return register_memory(std::span(&pd, 1), resolver, address, length, options);
}
/// This overload takes a pointer to the memory.
[[nodiscard]] inline Registration register_memory(const ProtectionDomain& pd,
                                                  const Resolver& resolver, const void* address,
                                                  std::size_t length,
                                                  const RegistrationOptions& options = {}) {
    return register_memory(pd, resolver, reinterpret_cast<std::uintptr_t>(address), length,
                           options);
}

/// Returns the protection domains of @p pds whose NICs are nearest to the memory, the nearest
/// first. A program can then register on these NICs only:
///
///     Topology topology = Topology::read(); // once
///     for (const ProtectionDomain& pd : pds) {
///         topology.query_data_direct(pd.context());
///     }
///     const MemoryLocation location = locate_memory(resolver.find(address).allocation, address);
///     const Registration region = register_memory(nearest_domains(pds, topology, location),
///                                                 resolver, address, length,
///                                                 {.topology = &topology});
///
/// NICs that are not in the topology are last.
/// @param most  the maximum number of protection domains. 0 selects the NICs with the lowest rank
///              (RankedNic::rank), which are equally near and equally fast.
/// @return at least one protection domain, unless @p pds is empty
/// @throws Error EBADF if a protection domain was closed
[[nodiscard]] RDMABUF_EXPORT std::vector<ProtectionDomain> nearest_domains(
    std::span<const ProtectionDomain> pds, const Topology& topology, const MemoryLocation& memory,
    std::size_t most = 0);

/// Registers several ranges on all protection domains of @p pds, as register_memory() registers one
/// range. Several NICs register at the same time. With more threads than NICs, one NIC also
/// registers several ranges at the same time.
///
///     std::vector<AddressRange> ranges;
///     for (const Tensor& tensor : tensors) {
///         ranges.push_back({.address = tensor.address, .length = tensor.bytes});
///     }
///     const std::vector<Registration> regions =
///         register_ranges(pds, resolver, ranges, {.access = Access::local_write, .threads = 8});
///
/// Short ranges are registered first: on EFA, the time to register device memory increases with the
/// number of bytes that are already registered. At most 64 ranges are exported at the same time.
/// @return one registration for each range, in the order of @p ranges
/// @throws Error for the same reasons as register_memory(), with the address and length of the
///         range that failed. All ranges are then deregistered, and RegistrationOptions::trail has
///         the attempts of the range that failed. EINVAL for RegistrationOptions::iova with more
///         than one range.
[[nodiscard]] RDMABUF_EXPORT std::vector<Registration> register_ranges(
    std::span<const ProtectionDomain> pds, const Resolver& resolver,
    std::span<const AddressRange> ranges, const RegistrationOptions& options = {});

} // namespace rdmabuf
