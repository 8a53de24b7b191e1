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
#include <rdmabuf/registered_memory.hpp>
#include <rdmabuf/registration_trail.hpp>
#include <rdmabuf/remote_region.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/topology.hpp>

namespace rdmabuf {

/// Which paths may be taken, in the order they are tried. Without any: dmabuf, then host for memory
/// that no exporter knows, and on_demand for managed memory.
class RDMABUF_EXPORT PathOrder {
  public:
    static constexpr std::size_t most = 5;

    constexpr PathOrder() noexcept = default;
    /// @throws Error EINVAL for a path that stands there twice.
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
    /// Device memory is never registered as host memory, whatever stands here: `host` is for
    /// addresses that no exporter knows, and for host memory that a device's driver pinned.
    PathOrder paths = {};
    /// On the dma-buf paths of local_write, remote_write, remote_read, remote_atomic and
    /// relaxed_ordering only.
    Access access = Access::local_write;
    /// Adds Access::relaxed_ordering: the order in which bytes of one write become visible is no
    /// longer promised.
    bool relaxed_ordering = false;
    /// The caller promises that this is a device's memory: a host pointer is refused (EFAULT), and
    /// nothing falls back to host memory.
    bool device_memory = false;
    /// The iova of the first byte; by default its address. Has to have the same page offset as the
    /// address (on the dma-buf paths, as the offset in the dma-buf).
    std::optional<std::uint64_t> iova = std::nullopt;
    /// Where the NICs and the memory of devices are. With it, the mapping of each NIC is chosen by
    /// its path to the memory; without it, by the kind of the NIC. Topology::query_data_direct()
    /// first, for NICs that may have a data-direct function. Read during the call only.
    const Topology* topology = nullptr;
    /// The mapping that is exported on the dma-buf paths. By default it is chosen for each NIC, as
    /// docs/registration.md describes, and the next choice is tried when the NIC refuses one with
    /// EOPNOTSUPP, EINVAL or 524. A value here is used for all NICs and has no alternative. pcie
    /// with the path dmabuf is for NICs that take it (EFA): on others it may register, and remote
    /// operations fail later.
    std::optional<MappingKind> mapping = std::nullopt;
    /// For TLP processing hints; not with dmabuf_data_direct. Read during the call only.
    const DmaHandle* dma_handle = nullptr;
    /// The maximum number of threads that register at the same time, the calling thread included.
    /// 1 creates no thread. With 0, a call that registers 1 MiB or more on a NIC uses one thread
    /// for each NIC, at most 16, and any other call none. More threads than NICs register several
    /// chunks or ranges on one NIC at the same time. Exporters are called by the calling thread
    /// only, and no thread outlives the call. The result, the trail and errors do not depend on the
    /// number of threads.
    unsigned threads = 0;
    /// Is given all attempts, whether the registration works or not. Not owned.
    Trail* trail = nullptr;
};

/// A range of memory, as register_ranges() takes it.
struct AddressRange {
    /// The address of the first byte, a CPU or a device pointer.
    std::uintptr_t address = 0;
    /// In bytes.
    std::size_t length = 0;
};

/// Memory that is registered, on one protection domain or on several: the result of
/// register_memory(). Holds the protection domains; not the memory, which stays its owner's.
class Registration : public RegisteredMemory {
  public:
    /// How many protection domains it is registered on; the functions below take the position of
    /// one in the list that was given.
    [[nodiscard]] std::size_t size() const noexcept { return set().regions.size(); }
    /// @throws Error EBADF when this was closed.
    [[nodiscard]] const ProtectionDomain& protection_domain(std::size_t i = 0) const {
        return set().regions[i].protection_domain();
    }

    /// The keys on one protection domain. @throws Error ENODEV when revoked, EBADF when closed.
    [[nodiscard]] std::uint32_t lkey(std::size_t i = 0) const {
        return usable(i, "Registration::lkey").lkey();
    }
    [[nodiscard]] std::uint32_t rkey(std::size_t i = 0) const {
        return usable(i, "Registration::rkey").rkey();
    }
    /// A scatter-gather entry for @p length bytes from @p offset.
    /// @throws Error as lkey(), and ERANGE when they do not lie inside; the hint has the numbers.
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::uint32_t length, std::size_t i = 0) const {
        return usable(i, "Registration::sge").sge(offset, length);
    }
    /// What a peer needs to reach the whole of it through that protection domain.
    /// @throws Error as lkey().
    [[nodiscard]] RemoteRegion remote(std::size_t i = 0) const {
        return usable(i, "Registration::remote").remote();
    }

    /// nullptr once it is deregistered.
    [[nodiscard]] ibv_mr* native(std::size_t i = 0) const noexcept {
        return set().regions[i].native();
    }
    /// The caller deregisters that one from now on.
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

/// Makes the @p length bytes at @p address known to every NIC of @p pds, whatever memory they are:
/// finds the exporter of the memory in @p resolver, then tries one path after the other until one
/// works on all of them. One dma-buf is exported for each mapping that a NIC needs, registered on
/// those NICs, and given back in its exporter's own way before this returns. Before the next path
/// is tried, all registrations of the path before are given back.
///
/// @throws Error when nothing worked: its hint is the trail, its errno that of the first attempt
///         that a driver or verbs answered. EINVAL before anything is tried, for a length of 0, a
///         range that overflows, no protection domain, and options that contradict each other.
///         A range longer than the NIC registers at once is refused by it (EINVAL): see
///         ChunkedRegion.
[[nodiscard]] RDMABUF_EXPORT Registration register_memory(std::span<const ProtectionDomain> pds,
                                                          const Resolver& resolver,
                                                          std::uintptr_t address,
                                                          std::size_t length,
                                                          const RegistrationOptions& options = {});
/// On one protection domain.
[[nodiscard]] inline Registration register_memory(const ProtectionDomain& pd,
                                                  const Resolver& resolver, std::uintptr_t address,
                                                  std::size_t length,
                                                  const RegistrationOptions& options = {}) {
    return register_memory(std::span(&pd, 1), resolver, address, length, options);
}
/// Of anything that a pointer leads to.
[[nodiscard]] inline Registration register_memory(const ProtectionDomain& pd,
                                                  const Resolver& resolver, const void* address,
                                                  std::size_t length,
                                                  const RegistrationOptions& options = {}) {
    return register_memory(pd, resolver, reinterpret_cast<std::uintptr_t>(address), length,
                           options);
}

/// The protection domains of @p pds whose NICs are nearest to the memory, the nearest first, to
/// register on these NICs only:
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
/// NICs that are not in the topology are the last ones.
/// @param most  the maximum number of protection domains; 0: those whose NICs have the lowest rank
///              (RankedNic::rank), which are equally near and equally fast
/// @return at least one, unless @p pds is empty
/// @throws Error EBADF for a protection domain that was closed
[[nodiscard]] RDMABUF_EXPORT std::vector<ProtectionDomain> nearest_domains(
    std::span<const ProtectionDomain> pds, const Topology& topology, const MemoryLocation& memory,
    std::size_t most = 0);

/// Registers several ranges on every NIC of @p pds, as register_memory() registers one: several
/// NICs at the same time and, with more threads than NICs, several ranges on a NIC.
///
///     std::vector<AddressRange> ranges;
///     for (const Tensor& tensor : tensors) {
///         ranges.push_back({.address = tensor.address, .length = tensor.bytes});
///     }
///     const std::vector<Registration> regions =
///         register_ranges(pds, resolver, ranges, {.access = Access::local_write, .threads = 8});
///
/// Short ranges are registered first, because a registration of device memory on EFA takes the
/// longer the more bytes are registered already. At most 64 ranges are exported at the same time.
/// @return a registration for each range, in the order of @p ranges
/// @throws Error as register_memory(), with the address and length of the range that failed: then
///         none of the ranges stays registered, and RegistrationOptions::trail has the attempts of
///         that range. EINVAL for RegistrationOptions::iova with more than one range.
[[nodiscard]] RDMABUF_EXPORT std::vector<Registration> register_ranges(
    std::span<const ProtectionDomain> pds, const Resolver& resolver,
    std::span<const AddressRange> ranges, const RegistrationOptions& options = {});

} // namespace rdmabuf
