// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/region.hpp>

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
/// returns the entry. If no entry contains the range, this function first registers the range.
/// @throws Error with the same errno values as RegistrationCache::acquire()
[[nodiscard]] RDMABUF_EXPORT CachedRegistration& acquire(CacheCore& core, std::uintptr_t address,
                                                         std::size_t length, Access access);
/// Finds a cache entry that contains the range and allows @p access, adds a lease to the entry and
/// returns the entry. Returns nullptr if the cache has no entry for this range and these access
/// flags.
[[nodiscard]] RDMABUF_EXPORT CachedRegistration* find(CacheCore& core, std::uintptr_t address,
                                                      std::size_t length, Access access) noexcept;
/// Ends one lease of @p entry. If @p entry was already removed from the cache and has no further
/// lease, this function deregisters the memory of the entry.
RDMABUF_EXPORT void give_back(CachedRegistration& entry) noexcept;

} // namespace rdmabuf::detail
