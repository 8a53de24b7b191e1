// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdmabuf/access.hpp>
#include <rdmabuf/detail/export.hpp>

namespace rdmabuf::detail {

class CacheCore;

struct CacheKeys {
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;
};

/// The members of a cache entry that a lease reads. These members do not change while the entry has
/// a lease. The cache derives its entries from this struct; an entry fits in one cache line.
struct CachedRegistration {
    std::uintptr_t address = 0;
    /// The address after the last byte of the entry.
    std::uintptr_t end = 0;
    /// The keys for each protection domain of the cache. This pointer points to `first` if the
    /// cache has only one protection domain.
    const CacheKeys* keys = &first;
    CacheKeys first = {};
    Access access{};
};

/// Adds a lease to an entry that contains the range and allows @p access, and returns the entry. If
/// the cache has no such entry, this function registers the range first.
/// @throws Error with the same errno values as RegistrationCache::acquire()
[[nodiscard]] RDMABUF_EXPORT CachedRegistration& acquire(CacheCore& core, std::uintptr_t address,
                                                         std::size_t length, Access access);
/// Adds a lease to an entry that contains the range and allows @p access, and returns the entry.
/// Returns nullptr if the cache has no such entry.
[[nodiscard]] RDMABUF_EXPORT CachedRegistration* find(CacheCore& core, std::uintptr_t address,
                                                      std::size_t length, Access access) noexcept;
/// Ends a lease on @p entry. If this was the last lease of an entry that was removed from the
/// cache, this function deregisters the memory of the entry.
RDMABUF_EXPORT void give_back(CachedRegistration& entry) noexcept;

} // namespace rdmabuf::detail
