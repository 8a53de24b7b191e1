// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/registration_cache.hpp>

#include "cache/core.hpp"

namespace rdmabuf {

RegistrationCache::RegistrationCache(std::span<const ProtectionDomain> pds, Resolver resolver,
                                     const RegistrationCacheOptions& options)
    : core_([&] {
          for (const ProtectionDomain& pd : pds) {
              static_cast<void>(detail::native_of(pd, "RegistrationCache", "ProtectionDomain"));
          }
          return new detail::CacheCore(pds, std::move(resolver), options);
      }()) {}

void RegistrationCache::Close::operator()(detail::CacheCore* core) const noexcept {
    core->close();
}

void RegistrationCache::invalidate(std::uintptr_t address, std::size_t length) noexcept {
    core_->invalidate(address, length);
}

void RegistrationCache::clear() noexcept {
    core_->clear();
}

RegistrationCache::Statistics RegistrationCache::statistics() const noexcept {
    return core_->statistics();
}

const Registration& RegistrationCache::Lease::registration() const noexcept {
    return *static_cast<const detail::CacheEntry&>(*entry_).details->registration;
}

} // namespace rdmabuf
