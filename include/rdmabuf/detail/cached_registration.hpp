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

/// What a lease reads of an entry of a cache: does not change while there is one. The cache keeps
/// what else a hit needs behind it, all in one cache line.
struct CachedRegistration {
    std::uintptr_t address = 0;
    /// The address after the last.
    std::uintptr_t end = 0;
    /// Of each protection domain: &first, when there is one only.
    const CacheKeys* keys = &first;
    CacheKeys first = {};
    Access access{};
};

/// A lease on an entry that serves, or on a new one.
[[nodiscard]] RDMABUF_EXPORT CachedRegistration& acquire(CacheCore& core, std::uintptr_t address,
                                                         std::size_t length, Access access);
/// A lease on an entry that serves; nullptr when there is none.
[[nodiscard]] RDMABUF_EXPORT CachedRegistration* find(CacheCore& core, std::uintptr_t address,
                                                      std::size_t length, Access access) noexcept;
/// Ends a lease. When it was the last of an entry that is no longer found, deregisters.
RDMABUF_EXPORT void give_back(CachedRegistration& entry) noexcept;

} // namespace rdmabuf::detail
