// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdmabuf/registration_cache.hpp>

#include "registration_fixture.hpp"

namespace rdmabuf::testing {

class RegistrationCacheTest : public RegistrationTest {
  protected:
    [[nodiscard]] RegistrationCache cache(const RegistrationCacheOptions& options = {}) const {
        return {basics_.pd, resolver_, options};
    }
    /// In the fake device's memory.
    [[nodiscard]] std::uintptr_t at(std::size_t offset) const { return device_address() + offset; }
    [[nodiscard]] std::uintptr_t host() const {
        return reinterpret_cast<std::uintptr_t>(host_memory_.data());
    }
    /// Registrations that exist, on all protection domains.
    static std::size_t live() { return softverbs_live(SOFTVERBS_MR); }
};

} // namespace rdmabuf::testing
