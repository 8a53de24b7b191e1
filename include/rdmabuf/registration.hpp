// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/resolver.hpp>

namespace rdmabuf {

class DmaHandle;       // in dma_handle.hpp
class Topology;        // in topology.hpp
struct MemoryLocation; // in topology.hpp

/// A registration path: a method to register memory with a NIC. docs/registration.md describes the
/// paths.
enum class RegistrationPath : std::uint8_t {
    /// The exporter's dma-buf is registered with ibv_reg_dmabuf_mr(3).
    dmabuf,
    /// A dma-buf, with the PCIe mapping if the exporter has one, is registered with
    /// mlx5dv_reg_dmabuf_mr(3). A ConnectX NIC then accesses the GPU through its data-direct
    /// function (a second PCI function of the NIC), and not through the link between CPU and GPU.
    dmabuf_data_direct,
    /// The device address is registered with ibv_reg_mr(3). A kernel module of the vendor
    /// (nvidia_peermem) finds the pages.
    peermem,
    /// Host memory is registered with ibv_reg_mr(3), or with ibv_reg_mr_ex() if
    /// RegistrationOptions::dma_handle is set.
    host,
    /// Managed memory or host memory is registered with ibv_reg_mr(3) and IBV_ACCESS_ON_DEMAND. No
    /// page is pinned, and the NIC raises a page fault for a page that is not present.
    on_demand,
};
/// Returns "dmabuf", "dmabuf_data_direct", "peermem", "host" or "on_demand".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(RegistrationPath path) noexcept;

/// One attempt of register_memory() to register memory on a registration path, or the reason why
/// the path was skipped.
struct Attempt {
    RegistrationPath path{};
    /// The mapping of the exported dma-buf. If the export failed, the requested mapping; if no
    /// export was requested, MappingKind::standard. The value has a meaning only for the dma-buf
    /// paths.
    MappingKind mapping = MappingKind::standard;
    /// The reason why this mapping was requested for the NIC, as a string literal. Empty if no
    /// export was requested, or if the standard mapping was requested. Also empty on the path
    /// dmabuf_data_direct if the caller listed this path and did not set
    /// RegistrationOptions::mapping.
    const char* reason = "";
    /// 0 if the attempt succeeded, otherwise a positive errno value. 524 is ENOTSUPP, which exists
    /// only in the kernel.
    int error = 0;
    /// The name of the C function that was called, or of the function of this library that refused
    /// the attempt. The name is a string literal.
    const char* call = "";
    /// The name of the exporter of the memory, or of an exporter that could not determine if it
    /// owns the memory; empty if no exporter owns it.
    std::string exporter = {};
    /// The device on which the attempt failed, or the devices on which it succeeded, separated by
    /// ", ". Empty if the attempt succeeded on all devices of the registration, or did not call a
    /// device.
    std::string device = {};
    /// The cause of the errno value in this attempt; empty if the cause is not known.
    std::string meaning = {};
    /// A change with which the registration may succeed; empty if no such change is known.
    std::string remedy = {};

    [[nodiscard]] bool worked() const noexcept { return error == 0; }
};
/// Returns a text such as "dmabuf: ibv_reg_dmabuf_mr on soft0, memory of cuda: Operation not
/// supported (EOPNOTSUPP): meaning; remedy".
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const Attempt& attempt);

/// The attempts of a registration, in chronological order (range by range for register_ranges()).
/// If the registration succeeded, the last attempt succeeded.
class Trail {
  public:
    using Attempts = std::vector<Attempt>;

    void add(Attempt attempt) { attempts_.push_back(std::move(attempt)); }
    /// Adds an empty attempt.
    /// @return this attempt; the reference is valid until the next attempt is added
    Attempt& add() { return attempts_.emplace_back(); }

    [[nodiscard]] std::size_t size() const noexcept { return attempts_.size(); }
    [[nodiscard]] bool empty() const noexcept { return attempts_.empty(); }
    [[nodiscard]] const Attempt& operator[](std::size_t i) const noexcept { return attempts_[i]; }
    [[nodiscard]] const Attempt& back() const noexcept { return attempts_.back(); }
    [[nodiscard]] Attempts::const_iterator begin() const noexcept { return attempts_.begin(); }
    [[nodiscard]] Attempts::const_iterator end() const noexcept { return attempts_.end(); }

  private:
    Attempts attempts_;
};
/// Returns a text with one sentence for each attempt, without line breaks.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const Trail& trail);

enum class RegistrationState : std::uint8_t {
    /// The memory is registered, and its keys may be used.
    registered,
    /// The memory was freed or revoked, so its keys are no longer valid. The memory regions still
    /// exist until close() or the destructor deregisters them.
    revoked,
    /// The memory was deregistered.
    closed,
};
/// Returns "registered", "revoked" or "closed".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(RegistrationState state) noexcept;

/// Returns true if a revoked region can cause this completion: a protection or access error on this
/// side or at the peer, or a remote operation error. Because a wrong key or address causes the same
/// errors, call RegisteredMemory::verify() to check if the memory was revoked. The registration of
/// a RegistrationCache::Lease cannot be verified: call RegistrationCache::invalidate() for the
/// range, end the lease, and acquire a new one, which registers the memory again.
[[nodiscard]] RDMABUF_EXPORT bool may_mean_revocation(const WorkCompletion& completion) noexcept;
/// Returns true if a revoked region can cause this asynchronous event: IBV_EVENT_QP_ACCESS_ERR,
/// IBV_EVENT_QP_FATAL or IBV_EVENT_DEVICE_FATAL. Verbs has no asynchronous event for a memory
/// region.
[[nodiscard]] RDMABUF_EXPORT bool may_mean_revocation(const AsyncEvent& event) noexcept;

namespace detail {

class CacheCore;

/// A memory region that was registered by any RegistrationPath.
class AnyRegion : public Region {
  public:
    /* implicit */ AnyRegion(Region&& region) noexcept : Region(std::move(region)) {}
    AnyRegion(RegionHandle handle, std::uint64_t iova, std::size_t length, Access access) noexcept
        : Region(std::move(handle), iova, length, access) {}
};

/// How one registration was made in one protection domain: the registration path, and the kind of
/// the mapping that was exported (valid only for the dma-buf paths).
struct NicPath {
    RegistrationPath path{};
    MappingKind mapping = MappingKind::standard;
};

/// One registration: its memory regions, and how they were registered.
struct RegisteredSet {
    std::vector<AnyRegion> regions = {};
    std::atomic<RegistrationState> state{RegistrationState::registered};
    /// The path and the mapping used for each protection domain, in the order of the protection
    /// domains that the caller passed.
    std::vector<NicPath> nics = {};
    std::uintptr_t address = 0;
    std::size_t length = 0;
    std::uint64_t iova = 0;
    Access access{};
    /// The name of the exporter; empty if no exporter owns the memory.
    std::string exporter = {};
    /// The exporter. Not owned, because the destructor of an exporter may call the vendor's driver,
    /// which must not be called during a deregistration: see RegisteredMemory.
    std::weak_ptr<const Exporter> source = {};
    std::optional<Allocation> allocation = std::nullopt;
    Trail trail = {};
};

} // namespace detail

/// The common base of Registration and ChunkedRegion: how the memory was registered, whether it is
/// still valid, and deregistration. Objects can be moved but not copied. After a move from an
/// object, its functions that can throw throw EBADF, except close() and verify().
///
/// **Revocation.** The memory behind a registered dma-buf can become invalid: its owner frees it, a
/// driver is unbound, or a virtual function is reset. Verbs does not report this. The program sees
/// only failed completions or asynchronous events: see may_mean_revocation(). The program then
/// calls mark_revoked() from any thread, or verify(), which queries the exporter. Once the
/// registration is marked as revoked, check() returns ENODEV, and the functions that return a key
/// throw ENODEV, except ChunkedRegion::chunks() and find().
///
/// Deregistration calls only verbs, and never the vendor's driver, because the memory may already
/// have been freed.
class RDMABUF_EXPORT RegisteredMemory {
  public:
    RegisteredMemory(RegisteredMemory&&) noexcept = default;
    RegisteredMemory& operator=(RegisteredMemory&&) noexcept = default;
    RegisteredMemory(const RegisteredMemory&) = delete;
    RegisteredMemory& operator=(const RegisteredMemory&) = delete;

    /// Returns the registration path by which the memory was registered on the protection domain
    /// with the index @p i.
    [[nodiscard]] RegistrationPath path(std::size_t i = 0) const {
        return set("RegisteredMemory::path").nics[i].path;
    }
    /// Returns the kind of the mapping that was exported for the protection domain with the index
    /// @p i. The result has a meaning only for the dma-buf paths. The NICs of one registration may
    /// need different mappings.
    [[nodiscard]] MappingKind mapping(std::size_t i = 0) const {
        return set("RegisteredMemory::mapping").nics[i].mapping;
    }
    /// Returns the attempts to register the memory; the last attempt succeeded.
    [[nodiscard]] const Trail& trail() const { return set("RegisteredMemory::trail").trail; }
    /// Returns the name of the memory's exporter; empty if no exporter owns the memory.
    [[nodiscard]] const std::string& exporter() const {
        return set("RegisteredMemory::exporter").exporter;
    }
    /// Returns the allocation that the exporter reported when the memory was registered. The result
    /// is empty for ordinary host memory.
    [[nodiscard]] const std::optional<Allocation>& allocation() const {
        return set("RegisteredMemory::allocation").allocation;
    }

    /// Returns the CPU or device address of the first byte of the memory. Do not call this function
    /// or the next three after a move from this object (an assertion checks this).
    [[nodiscard]] std::uintptr_t address() const noexcept { return set().address; }
    /// Returns the length of the memory in bytes.
    [[nodiscard]] std::size_t length() const noexcept { return set().length; }
    /// Returns the iova: the address of the first byte for scatter-gather entries and remote
    /// operations.
    [[nodiscard]] std::uint64_t iova() const noexcept { return set().iova; }
    [[nodiscard]] Access access() const noexcept { return set().access; }

    [[nodiscard]] RegistrationState state() const noexcept {
        return set_ != nullptr ? set_->state.load(std::memory_order_relaxed)
                               : RegistrationState::closed;
    }
    /// Returns success if the keys may be used, ENODEV if the memory was revoked, and EBADF if this
    /// object was closed. The function makes no system call, so the data path can call it.
    [[nodiscard]] Status check() const noexcept {
        switch (state()) {
            case RegistrationState::registered:
                return {};
            case RegistrationState::revoked:
                return Status(ENODEV);
            case RegistrationState::closed:
                break;
        }
        return Status(EBADF);
    }

    /// Marks the memory as revoked. Call this function when the memory was freed or its mapping is
    /// no longer valid. Any thread may call this function, but not while this object is moved,
    /// closed or destroyed. After close(), the function has no effect.
    void mark_revoked() noexcept;
    /// Queries the exporter of this memory, and marks this registration as revoked if the
    /// allocation was freed or replaced since the registration. This calls the vendor's driver, so
    /// do not call it on the data path; call it when may_mean_revocation() returns true. Host
    /// memory that a driver has pinned is never marked if it was registered by
    /// RegistrationPath::host or on_demand, because it can outlive the driver's pinning. Memory
    /// that no exporter owns is never marked. If the exporter has no generations
    /// (Allocation::generation is 0), verify() detects freed memory but not replaced memory. A
    /// range that was removed from its exporter (AddedRange::remove()) counts as freed memory.
    /// @throws Error ENOENT if the exporter was destroyed: the program must keep the exporter, or a
    ///         Resolver that has it; the errno value of the exporter's driver if the query fails
    RegistrationState verify();

    /// Deregisters the memory on all protection domains. After an error, this object still owns the
    /// regions that could not be deregistered, the state is unchanged, and close() can be called
    /// again.
    /// @throws Error with the first errno value of ibv_dereg_mr(3): EBUSY while memory windows are
    ///         bound to a region
    void close();

  protected:
    explicit RegisteredMemory(std::unique_ptr<detail::RegisteredSet> set) noexcept
        : set_(std::move(set)) {}
    ~RegisteredMemory() = default;

    /// Returns region @p i, whose keys may be used.
    /// @throws Error ENODEV if the memory was revoked; EBADF if this object was closed, or if this
    ///         region was released or already deregistered by a failed close()
    [[nodiscard]] const detail::AnyRegion& usable(std::size_t i, const char* function) const {
        if (!check() || set_->regions[i].native() == nullptr) {
            refuse(function);
        }
        return set_->regions[i];
    }
    [[noreturn]] void refuse(const char* function) const;

    /// Returns all regions; none if this object was moved from.
    [[nodiscard]] std::span<detail::AnyRegion> regions() const noexcept {
        return set_ != nullptr ? std::span(set_->regions) : std::span<detail::AnyRegion>();
    }
    [[nodiscard]] const detail::RegisteredSet& set() const noexcept {
        assert(set_ != nullptr && "the registration was moved from");
        return *set_;
    }
    /// @throws Error EBADF if this object was moved from
    [[nodiscard]] const detail::RegisteredSet& set(const char* function) const {
        if (set_ == nullptr) {
            refuse(function);
        }
        return *set_;
    }

  private:
    friend class detail::CacheCore;

    std::unique_ptr<detail::RegisteredSet> set_;
};

/// The registration paths that may be used, in the order in which they are tried. For an empty
/// list, the order is dmabuf, host; for managed memory it is dmabuf, on_demand; with
/// RegistrationOptions::device_memory it is dmabuf only.
class RDMABUF_EXPORT PathOrder {
  public:
    static constexpr std::size_t most = 5;

    constexpr PathOrder() noexcept = default;
    /// Creates a list of paths.
    /// @throws Error EINVAL for a path that is listed twice
    /* implicit */ PathOrder(std::initializer_list<RegistrationPath> paths)
        : PathOrder(std::span(paths.begin(), paths.size())) {}
    explicit PathOrder(std::span<const RegistrationPath> paths);

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
    /// has pinned. For device memory, each of the two dma-buf paths may also try the other one, if
    /// the other one is not listed and neither `mapping` nor `dma_handle` is set. An empty list
    /// with MappingKind::pcie and no DMA handle selects dmabuf_data_direct instead of dmabuf for
    /// NICs that have a data-direct function.
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
    /// The iova of the first byte; by default the address of this byte, or 0 with
    /// Access::zero_based. The iova must be equal to this address modulo the page size. On the
    /// dma-buf paths, the iova must instead be equal to the offset of the byte in the dma-buf,
    /// modulo the page size.
    std::optional<std::uint64_t> iova = std::nullopt;
    /// The topology of the machine; may be nullptr. The mapping for each NIC is selected by the
    /// type of the NIC. If the topology contains the NIC and the device that holds the memory, the
    /// path between them can change the selection (docs/registration.md). Call
    /// Topology::query_data_direct() first for NICs that could have a data-direct function. The
    /// pointer is not used after the call. For a RegistrationCache, set
    /// RegistrationCacheOptions::topology instead.
    const Topology* topology = nullptr;
    /// The mapping that is exported on the dma-buf paths. By default the mapping is selected for
    /// each NIC, as docs/registration.md describes. If the NIC refuses this mapping with
    /// EOPNOTSUPP, EINVAL or 524 (the kernel's ENOTSUPP), the next mapping is tried. A value set
    /// here is used for all NICs, and no other mapping is tried. Set MappingKind::pcie with the
    /// path dmabuf only for NICs that can use it (EFA). On other NICs the registration may succeed,
    /// and remote operations fail later.
    std::optional<MappingKind> mapping = std::nullopt;
    /// The DMA handle with TLP processing hints for the NIC's accesses. If it is set, all
    /// protection domains must have the context of the handle, and `paths` must not list
    /// dmabuf_data_direct or on_demand. If the list is empty, these two paths are not used, also
    /// for managed memory. The pointer is not used after the call, but the regions hold a copy of
    /// the DmaHandle, which keeps the DMA handle allocated.
    const DmaHandle* dma_handle = nullptr;
    /// The maximum number of threads that register at the same time, including the calling thread.
    /// With 1, no thread is created. With 0, a call that registers 1 MiB or more on a NIC uses one
    /// thread for each NIC, but at most 16; other calls create no thread. If there are more threads
    /// than NICs, several chunks or ranges are registered on one NIC at the same time. Only the
    /// calling thread calls exporters. All created threads end before the call returns. The result,
    /// the trail and errors do not depend on the number of threads.
    unsigned threads = 0;
    /// The list that receives the attempts of the registration, also if the registration fails;
    /// nullptr if the attempts are not needed. The attempts replace the contents of the list. An
    /// error before the first attempt leaves the list unchanged. The list is not owned.
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
/// A Registration keeps the protection domains alive. It does not own the memory, which the caller
/// must not free before the Registration is closed or destroyed.
class Registration : public RegisteredMemory {
  public:
    /// Returns the number of protection domains. The functions below have the parameter @p i: the
    /// position of a protection domain in the list that was passed to register_memory().
    [[nodiscard]] std::size_t size() const noexcept { return regions().size(); }
    /// Returns the protection domain at position @p i of the list that was passed to
    /// register_memory().
    /// @throws Error EBADF if the registration was closed, or if there is no such position
    [[nodiscard]] const ProtectionDomain& protection_domain(std::size_t i = 0) const {
        if (i >= size()) {
            refuse("Registration::protection_domain");
        }
        return regions()[i].protection_domain();
    }

    /// Returns the lkey on the protection domain with the index @p i.
    /// @throws Error ENODEV if the memory was revoked; EBADF if the registration was closed, or
    ///         this ibv_mr was released
    [[nodiscard]] std::uint32_t lkey(std::size_t i = 0) const {
        return usable(i, "Registration::lkey").lkey();
    }
    /// Returns the rkey on the protection domain with the index @p i.
    /// @throws Error for the same reasons as lkey()
    [[nodiscard]] std::uint32_t rkey(std::size_t i = 0) const {
        return usable(i, "Registration::rkey").rkey();
    }
    /// Returns a scatter-gather entry for @p length bytes at @p offset in the memory, for the
    /// protection domain with the index @p i.
    /// @throws Error for the same reasons as lkey(), and ERANGE if the bytes are not inside the
    ///         memory; Error::hint() contains the offset, the length and the size of the memory
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::uint32_t length, std::size_t i = 0) const {
        return usable(i, "Registration::sge").sge(offset, length);
    }
    /// Returns the iova, length and rkey that a peer needs to access the memory through the
    /// protection domain with the index @p i.
    /// @throws Error for the same reasons as lkey()
    [[nodiscard]] RemoteRegion remote(std::size_t i = 0) const {
        return usable(i, "Registration::remote").remote();
    }

    /// Returns the ibv_mr on the protection domain with the index @p i; nullptr if it was
    /// deregistered or released.
    [[nodiscard]] ibv_mr* native(std::size_t i = 0) const noexcept {
        return i < size() ? regions()[i].native() : nullptr;
    }
    /// Returns the ibv_mr on the protection domain with the index @p i and gives up ownership: the
    /// caller must deregister this ibv_mr.
    [[nodiscard]] ibv_mr* release(std::size_t i = 0) noexcept {
        return i < size() ? regions()[i].release() : nullptr;
    }

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
/// paths, the function exports one dma-buf for each mapping that a NIC needs (for each NIC, if
/// Allocation::single_import is set), registers the dma-buf on these NICs, and releases the
/// descriptor before the call returns. Before the function tries the next path, it deregisters all
/// regions of the previous path.
///
/// @throws Error
///   - EBADF: a protection domain was closed
///   - EINVAL: a length of 0, a range that overflows, an empty @p pds, or options that contradict
///     each other. Nothing was tried then
///   - if no path succeeds, the errno value of one of the attempts; Error::hint() is the trail
///     (list) of the attempts. The errno value is that of the first attempt in this order: a failed
///     call of an exporter or verbs without a dma-buf, unless the memory is device memory; another
///     failed call of an exporter or verbs; a failure other than memory that no exporter knows; any
///     failure. A NIC refuses a range that is longer than it can register at once, for example with
///     EINVAL: see ChunkedRegion
[[nodiscard]] RDMABUF_EXPORT Registration register_memory(std::span<const ProtectionDomain> pds,
                                                          const Resolver& resolver,
                                                          std::uintptr_t address,
                                                          std::size_t length,
                                                          const RegistrationOptions& options = {});
/// Same as the overload above, for a single protection domain.
[[nodiscard]] inline Registration register_memory(const ProtectionDomain& pd,
                                                  const Resolver& resolver, std::uintptr_t address,
                                                  std::size_t length,
                                                  const RegistrationOptions& options = {}) {
    return register_memory(std::span(&pd, 1), resolver, address, length, options);
}
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
/// range. RegistrationOptions::threads determines how many ranges and NICs are registered at the
/// same time.
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
/// @return one registration for each range, in the order of @p ranges. RegistrationOptions::trail
///         then has the attempts of all ranges, in the same order.
/// @throws Error for the same reasons as register_memory(), with the address and length of the
///         range that failed. All ranges are then deregistered, and RegistrationOptions::trail has
///         the attempts of the range that failed. EINVAL for RegistrationOptions::iova with more
///         than one range.
[[nodiscard]] RDMABUF_EXPORT std::vector<Registration> register_ranges(
    std::span<const ProtectionDomain> pds, const Resolver& resolver,
    std::span<const AddressRange> ranges, const RegistrationOptions& options = {});

} // namespace rdmabuf
