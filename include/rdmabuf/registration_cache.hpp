// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/resolver.hpp>

namespace rdmabuf::detail {

class CacheCore;

struct CacheKeys {
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;
};

/// The members of a cache entry that RegistrationCache::Lease reads. A lease keeps the memory of
/// the entry registered, and these members do not change while the entry has a lease. The entries
/// of the cache derive from this struct.
struct CachedRegistration {
    std::uintptr_t address = 0;
    /// The address after the last byte of the entry.
    std::uintptr_t end = 0;
    /// Points to an array with the keys for each protection domain of the cache, or to `first` if
    /// the cache has only one protection domain.
    const CacheKeys* keys = &first;
    CacheKeys first = {};
    Access access{};
};

/// Finds a cache entry that contains the range and allows @p access, adds a lease to the entry and
/// returns the entry. If there is no such entry, this function first registers the range.
/// @throws Error with the same errno values as RegistrationCache::acquire()
[[nodiscard]] RDMABUF_EXPORT CachedRegistration& acquire(CacheCore& core, std::uintptr_t address,
                                                         std::size_t length, Access access);
/// Finds a cache entry that contains the range and allows @p access, adds a lease to the entry and
/// returns the entry. Returns nullptr if the cache has no valid entry for this range and these
/// access flags.
[[nodiscard]] RDMABUF_EXPORT CachedRegistration* find(CacheCore& core, std::uintptr_t address,
                                                      std::size_t length, Access access) noexcept;
/// Ends one lease of @p entry. If it was the last lease, deregisters the memory of an entry that
/// was removed from the cache, or that was registered for its leases only: at a limit of the cache,
/// or by CachePolicy::checked.
RDMABUF_EXPORT void give_back(CachedRegistration& entry) noexcept;

} // namespace rdmabuf::detail

namespace rdmabuf {

/// The method by which a cache detects that an address no longer refers to the memory that was
/// registered.
enum class CachePolicy : std::uint8_t {
    /// The caller must call RegistrationCache::invalidate() before memory is freed, unmapped or
    /// mapped again. Without this call, the cache returns keys of freed memory.
    explicit_invalidation,
    /// The cache queries the exporter on each hit, and compares the generation of the allocation. A
    /// hit then includes a call of Exporter::find_range(), which in most exporters calls the
    /// vendor's driver. For some memory no generation can be compared: host memory that no exporter
    /// knows, exporters without generations, and a range of more than one allocation. Such memory
    /// is registered for each lease, and deregistered when the lease ends. Other memory that is
    /// freed stays registered until the next lookup of its address, its eviction, or invalidate():
    /// if the program frees memory without a call of invalidate(), it should set
    /// RegistrationCacheOptions::max_bytes, because registered memory may stay allocated or pinned.
    checked,
};

struct RegistrationCacheOptions {
    CachePolicy policy = CachePolicy::explicit_invalidation;
    /// The maximum number of entries. An entry in use (with a lease) counts, and is not evicted. If
    /// all entries are in use at the limit, acquire() still registers further memory, but this
    /// memory is deregistered when its last lease ends.
    std::size_t max_entries = 65536;
    /// The maximum total length of the entries in bytes, on one protection domain. At this limit,
    /// the cache behaves as at the limit `max_entries`.
    std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
    /// The options of all registrations. The cache ignores `access`, because acquire() has a
    /// parameter for the access flags. `iova`, `trail` and `dma_handle` must not be set, because
    /// their values are for a single registration. `topology` must not be set, because the cache
    /// would keep the pointer: set RegistrationCacheOptions::topology instead.
    RegistrationOptions registration = {};
    /// The topology for all registrations; see RegistrationOptions::topology. The cache shares the
    /// ownership. The program must not change the topology while the cache exists.
    std::shared_ptr<const Topology> topology = nullptr;
};

/// A cache of registrations. All functions are thread safe. An entry is a Registration on all
/// protection domains of the cache. The cache installs no hooks into malloc or the kernel: see
/// CachePolicy.
///
/// **Hits.** An entry serves a range that lies inside it, if the entry allows at least the
/// requested access and has the same other flags (relaxed_ordering, on_demand, hugetlb and the
/// flush flags). For the first 127 threads that use caches at the same time, a hit takes no lock,
/// makes no system call and allocates nothing. It writes to no memory that other threads write to,
/// except the first hit on an entry after a miss and a hit with an address that is new to the
/// cache. All other threads share a lock. Finding an entry and ending its lease takes about 90
/// instructions, which benchmarks/cache checks, and O(log n) more for an address that is new to the
/// cache. With CachePolicy::checked, a hit also queries the exporter.
///
/// **Misses** register outside all locks. Other threads that need the same memory wait for the
/// registration. If it fails, those that need the same range and access get the same error. Idle
/// entries of the same allocation that overlap or touch the new range are merged with the new range
/// into one registration, if the merged range is at least 1.5 times as long as each of these
/// entries. A program that uses a buffer part by part, from start to end, then causes few
/// entries, and each byte is registered only a logarithmic number of times. If the merged range
/// cannot be registered, the requested range is registered alone. On ENOMEM, all idle entries are
/// deregistered, and the registration is tried once more.
///
/// A cache must not be used in a child of fork(2), because it may wait for threads that do not
/// exist in the child.
///
/// A memory window must not be bound to an entry when the last lease on the entry ends:
/// ibv_dereg_mr then fails with EBUSY when the entry is removed, the teardown failure handler is
/// called, and the memory stays registered.
///
/// An rkey gives access to the whole entry, with all access flags of the entry. Do not send the
/// rkey of a lease to a peer that must not access the memory beside the range.
class RDMABUF_EXPORT RegistrationCache {
  public:
    /// A lease is the right to use an entry of the cache. The memory stays registered until the
    /// lease ends, also if the entry is invalidated or the cache is destroyed. Any thread may end
    /// the lease. A lease can be moved but not copied.
    class Lease {
      public:
        Lease() noexcept = default;

        explicit operator bool() const noexcept { return entry_ != nullptr; }

        /// Returns the lkey on the protection domain with the index @p pd in the list of the cache.
        /// This function and the functions below, except reset(), must not be called for an empty
        /// lease.
        [[nodiscard]] std::uint32_t lkey(std::size_t pd = 0) const noexcept {
            return entry_->keys[pd].lkey;
        }
        /// Returns the rkey on the protection domain with the index @p pd in the list of the cache.
        [[nodiscard]] std::uint32_t rkey(std::size_t pd = 0) const noexcept {
            return entry_->keys[pd].rkey;
        }
        /// Returns the address of the first byte of the entry. The entry contains the requested
        /// range.
        [[nodiscard]] std::uintptr_t address() const noexcept { return entry_->address; }
        /// Returns the length of the entry in bytes.
        [[nodiscard]] std::size_t length() const noexcept { return entry_->end - entry_->address; }
        /// Returns the iova of the entry, which is the same as address().
        [[nodiscard]] std::uint64_t iova() const noexcept { return entry_->address; }
        /// Returns the access flags of the entry, which include the requested flags.
        [[nodiscard]] Access access() const noexcept { return entry_->access; }
        /// Returns the address, length and rkey that a peer needs to access the whole entry.
        [[nodiscard]] RemoteRegion remote(std::size_t pd = 0) const noexcept {
            return {.address = iova(), .length = length(), .rkey = rkey(pd)};
        }
        /// Returns a reference to the registration of the entry, which is valid until the lease
        /// ends. Other leases share the registration, so the program can neither verify it nor mark
        /// it as revoked; may_mean_revocation() says what to do instead.
        [[nodiscard]] const Registration& registration() const noexcept;

        /// Ends the lease now. Afterwards the lease is empty.
        void reset() noexcept { entry_.reset(); }

      private:
        friend class RegistrationCache;
        struct GiveBack {
            void operator()(detail::CachedRegistration* entry) const noexcept {
                detail::give_back(*entry);
            }
        };
        explicit Lease(detail::CachedRegistration* entry) noexcept : entry_(entry) {}

        std::unique_ptr<detail::CachedRegistration, GiveBack> entry_;
    };

    struct Statistics {
        /// The number of calls of acquire() and find() that returned a lease on an existing entry,
        /// without waiting for its registration.
        std::uint64_t hits = 0;
        /// The number of calls of acquire() that found no entry, and then registered memory or
        /// waited while another thread registered the same memory. Failed registrations count too.
        std::uint64_t misses = 0;
        /// The number of cache entries that were evicted to make room for a new entry, or after
        /// ENOMEM.
        std::uint64_t evictions = 0;
        /// The number of entries that were removed because their allocation was freed or replaced
        /// (CachePolicy::checked).
        std::uint64_t stale = 0;
        /// The number of entries that invalidate() and clear() removed.
        std::uint64_t invalidations = 0;
        /// The number of entries that were replaced by a longer entry.
        std::uint64_t merges = 0;
        /// The number of registrations now. It includes registrations in progress, but not entries
        /// that are being deregistered.
        std::size_t entries = 0;
        /// The total length in bytes of the registrations that `entries` counts, on one protection
        /// domain.
        std::uint64_t bytes = 0;
    };

    /// Creates a cache for registrations on all protection domains of @p pds. The cache does not
    /// query exporters that are added to the program's resolver later, so their memory could be
    /// registered as host memory.
    /// @throws Error EINVAL for an empty @p pds, for a limit of 0 entries or 0 bytes, and for
    ///         registration options that must not be set; EBADF for a protection domain that was
    ///         closed
    RegistrationCache(std::span<const ProtectionDomain> pds, Resolver resolver,
                      const RegistrationCacheOptions& options = {});
    /// Same as the constructor above, for a single protection domain.
    RegistrationCache(const ProtectionDomain& pd, Resolver resolver,
                      const RegistrationCacheOptions& options = {})
        : RegistrationCache(std::span(&pd, 1), std::move(resolver), options) {}

    RegistrationCache(RegistrationCache&&) noexcept = default;
    RegistrationCache& operator=(RegistrationCache&&) noexcept = default;
    RegistrationCache(const RegistrationCache&) = delete;
    RegistrationCache& operator=(const RegistrationCache&) = delete;
    /// Leases stay valid after the cache is destroyed.
    ~RegistrationCache() = default;

    /// Returns a lease on an entry that contains the @p length bytes at @p address. If no entry
    /// serves the range, the range is registered as a new entry.
    /// @throws Error for the same reasons as register_memory(), and
    ///         EINVAL for a length of 0, for a range that overflows, and for Access::zero_based,
    ///         because an iova would then refer to different bytes in different entries;
    ///         EDEADLK if an exporter calls this function for the memory that it exports for this
    ///         cache at the moment;
    ///         EAGAIN if the range was invalidated during each of 16 registrations
    [[nodiscard]] Lease acquire(std::uintptr_t address, std::size_t length, Access access) {
        return Lease(&detail::acquire(*core_, address, length, access));
    }
    /// This overload takes a pointer to the memory.
    [[nodiscard]] Lease acquire(const void* address, std::size_t length, Access access) {
        return acquire(reinterpret_cast<std::uintptr_t>(address), length, access);
    }
    /// Returns a lease on an existing entry that contains the range. Returns an empty lease if no
    /// entry serves the range, or if CachePolicy::checked finds that the allocation was freed or
    /// replaced, or cannot query its exporter. This function never registers memory, and its calls
    /// do not count as misses in the statistics.
    [[nodiscard]] Lease find(std::uintptr_t address, std::size_t length, Access access) noexcept {
        return Lease(detail::find(*core_, address, length, access));
    }

    /// Declares that the memory of a range was freed or will be freed. Leases that are returned
    /// after this call do not use older registrations of the range; this includes leases from calls
    /// of acquire() in progress. Existing leases keep their entries until the leases end. All other
    /// entries that overlap the range are deregistered before this function returns, also if
    /// another thread has already begun to deregister them. Two kinds of entries are deregistered
    /// later: a registration that another thread has in progress, and that includes the range
    /// because it merges neighbouring entries; and, with CachePolicy::checked, an entry that a call
    /// of acquire() or find() in progress compares with the exporter's generation.
    ///
    /// A hook of munmap(2) may call this function and may end leases, also if a function of this
    /// cache unmaps memory. The entries are then deregistered when that function continues. The
    /// hook must not hold a lock of an allocator, because deregistering allocates. A hook must not
    /// invalidate several caches that several threads use, because two threads could wait for each
    /// other. In a child of fork(2), which has no registrations, this function does nothing.
    void invalidate(std::uintptr_t address, std::size_t length) noexcept;
    /// Calls invalidate() for all addresses.
    void clear() noexcept;

    /// Returns the statistics. They include every call of another function that returned before
    /// this call.
    [[nodiscard]] Statistics statistics() const noexcept;

  private:
    struct Close {
        void operator()(detail::CacheCore* core) const noexcept;
    };
    std::unique_ptr<detail::CacheCore, Close> core_;
};

} // namespace rdmabuf
