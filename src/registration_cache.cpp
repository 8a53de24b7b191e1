// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/registration_cache.hpp>

#include "registration_cache_core.hpp"

namespace rdmabuf {

namespace detail {

void give_back(CachedRegistration& entry) noexcept {
    CacheCore::give_back(static_cast<CacheSlot&>(entry));
}

} // namespace detail

RegistrationCache::RegistrationCache(std::span<const ProtectionDomain> pds, Resolver resolver,
                                     const RegistrationCacheOptions& options)
    : core_(new detail::CacheCore(pds, std::move(resolver), options)) {}

void RegistrationCache::Close::operator()(detail::CacheCore* core) const noexcept {
    core->close();
}

RegistrationCache::Lease RegistrationCache::acquire(std::uintptr_t address, std::size_t length,
                                                    Access access) {
    detail::CacheSlot* const hit = core_->find(address, length, access);
    return Lease(hit != nullptr ? hit : &core_->acquire_missed(address, length, access));
}

RegistrationCache::Lease RegistrationCache::find(std::uintptr_t address, std::size_t length,
                                                 Access access) noexcept {
    return Lease(core_->find(address, length, access));
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
    return *static_cast<const detail::CacheSlot&>(*entry_).rest->registration;
}

} // namespace rdmabuf
