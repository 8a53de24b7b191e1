// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include <rdmabuf/access.hpp>
#include <rdmabuf/detail/cached_registration.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/remote_region.hpp>
#include <rdmabuf/resolver.hpp>

namespace rdmabuf {

/// How a cache knows that an address still is the memory that was registered.
enum class CachePolicy : std::uint8_t {
    /// The caller says when it is not: RegistrationCache::invalidate() before memory is freed,
    /// unmapped or mapped anew. A caller that forgets is given keys of memory that is gone.
    explicit_invalidation,
    /// The exporter is asked on each hit, and its generation compared: a hit costs what its find()
    /// costs (for most a call into a vendor's driver). Memory that cannot be asked about has no
    /// idle entries: it is registered once for all leases that exist at the same time, and
    /// deregistered with the last of them. That is ordinary host memory, which no exporter knows,
    /// and a range that leaves the allocation it begins in.
    checked,
};

struct RegistrationCacheOptions {
    CachePolicy policy = CachePolicy::explicit_invalidation;
    /// How many registrations are kept, and how many bytes they have together. What is in use
    /// counts and stays, so that a transfer never fails for these limits: beyond them memory is
    /// registered for its leases only, and deregistered with the last of them.
    std::size_t max_entries = 65536;
    std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
    /// How everything is registered. `access` is not read: acquire() says it. One registration
    /// serves many ranges, so `iova`, `trail` and `dma_handle`, which are of one, have to be empty.
    RegistrationOptions registration = {};
};

/// Registrations that are kept for the next one who needs them. Thread safe. One entry is a
/// Registration on all protection domains of the cache. No hooks into malloc or the kernel: see
/// CachePolicy.
///
/// **Hits.** A range that lies inside an entry is served by it, when the entry allows at least the
/// access asked for, and has the same relaxed_ordering, on_demand and hugetlb. A hit takes no lock,
/// makes no system call, allocates nothing and, on the first 127 threads that use caches (a thread
/// that ends makes room), writes to no memory that other threads write to; all others share a lock.
/// Finding an entry and giving its lease back takes about 90 instructions, of which
/// benchmarks/cache makes sure, and O(log n) more for an address that is new to the cache. Under
/// CachePolicy::checked a hit asks the exporter besides.
///
/// **Misses** register, outside all locks; others who need the same memory meanwhile wait for it,
/// and get the same error when that fails. Idle entries that overlap or touch the new range, in the
/// same allocation, are registered with it as one, where that one is longer by half than each of
/// them: a stream through a buffer leaves few entries, and registers its bytes again a logarithmic
/// number of times only. What cannot be registered as one is registered as asked. On ENOMEM all
/// idle entries are deregistered, and it is tried once more.
///
/// Not for a child of fork(2): what it copies of a cache may wait for threads it does not have.
///
/// A key reaches the whole entry, with all its access: give peers no rkey of a lease where they
/// must not reach what lies beside it in a buffer.
class RDMABUF_EXPORT RegistrationCache {
  public:
    /// The right to use an entry. Moves only. Whatever becomes of the entry or of the cache, the
    /// memory stays registered until the lease is given back, by any thread.
    class Lease {
      public:
        Lease() noexcept = default;

        explicit operator bool() const noexcept { return entry_ != nullptr; }

        /// The keys on one protection domain of the cache; as all below, not of an empty lease.
        [[nodiscard]] std::uint32_t lkey(std::size_t pd = 0) const noexcept {
            return entry_->keys[pd].lkey;
        }
        [[nodiscard]] std::uint32_t rkey(std::size_t pd = 0) const noexcept {
            return entry_->keys[pd].rkey;
        }
        /// Where the entry begins, and its length in bytes: it holds what was asked for.
        [[nodiscard]] std::uintptr_t address() const noexcept { return entry_->address; }
        [[nodiscard]] std::size_t length() const noexcept { return entry_->end - entry_->address; }
        /// The same as address(): the NIC counts as the owner of the memory does.
        [[nodiscard]] std::uint64_t iova() const noexcept { return entry_->address; }
        /// At least what was asked for.
        [[nodiscard]] Access access() const noexcept { return entry_->access; }
        /// What a peer needs to reach the whole entry.
        [[nodiscard]] RemoteRegion remote(std::size_t pd = 0) const noexcept {
            return {.address = iova(), .length = length(), .rkey = rkey(pd)};
        }
        /// The registration itself.
        [[nodiscard]] const Registration& registration() const noexcept;

        /// Gives the lease back now, and leaves this empty.
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
        /// Leases that needed no registration, and those that did or waited for one.
        std::uint64_t hits = 0;
        std::uint64_t misses = 0;
        /// Entries that went to make room, and that an exporter did not know as the same any more.
        std::uint64_t evictions = 0;
        std::uint64_t stale = 0;
        /// Entries that invalidate() and clear() took out.
        std::uint64_t invalidations = 0;
        /// Entries whose place a longer one has taken.
        std::uint64_t merges = 0;
        /// What is registered now, kept or in use; the bytes on one protection domain.
        std::size_t entries = 0;
        std::uint64_t bytes = 0;
    };

    /// @throws Error EINVAL without a protection domain, for a limit of 0 entries or 0 bytes, and
    ///         for registration options that are of one registration only.
    RegistrationCache(std::span<const ProtectionDomain> pds, Resolver resolver,
                      const RegistrationCacheOptions& options = {});
    /// On one protection domain.
    RegistrationCache(const ProtectionDomain& pd, Resolver resolver,
                      const RegistrationCacheOptions& options = {})
        : RegistrationCache(std::span(&pd, 1), std::move(resolver), options) {}

    RegistrationCache(RegistrationCache&&) noexcept = default;
    RegistrationCache& operator=(RegistrationCache&&) noexcept = default;
    RegistrationCache(const RegistrationCache&) = delete;
    RegistrationCache& operator=(const RegistrationCache&) = delete;
    /// Leases may outlive it.
    ~RegistrationCache() = default;

    /// The right to use the @p length bytes at @p address: of an entry that holds them, or of a new
    /// one.
    /// @throws Error as register_memory(), and EINVAL for a length of 0, a range that overflows,
    /// and
    ///         Access::zero_based, where what an address means would depend on the entry found.
    [[nodiscard]] Lease acquire(std::uintptr_t address, std::size_t length, Access access) {
        return Lease(&detail::acquire(*core_, address, length, access));
    }
    /// Of anything that a pointer leads to.
    [[nodiscard]] Lease acquire(const void* address, std::size_t length, Access access) {
        return acquire(reinterpret_cast<std::uintptr_t>(address), length, access);
    }
    /// acquire() without the miss: an empty lease when no entry serves. It is no miss of the
    /// statistics.
    [[nodiscard]] Lease find(std::uintptr_t address, std::size_t length, Access access) noexcept {
        return Lease(detail::find(*core_, address, length, access));
    }

    /// Says that the memory of a range will go or has gone. Once this returns no lease is given on
    /// what was registered of it before, also not by an acquire() that has begun: it registers
    /// anew. Leases that exist keep their entry until they are given back; the other entries that
    /// overlap the range are deregistered before this returns.
    void invalidate(std::uintptr_t address, std::size_t length) noexcept;
    /// invalidate() of everything.
    void clear() noexcept;

    /// Exact about calls that have returned.
    [[nodiscard]] Statistics statistics() const noexcept;

  private:
    struct Close {
        void operator()(detail::CacheCore* core) const noexcept;
    };
    std::unique_ptr<detail::CacheCore, Close> core_;
};

} // namespace rdmabuf
