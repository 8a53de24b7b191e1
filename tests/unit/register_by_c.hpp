// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>
#include <rdmabuf/rdmabuf.h>
#include <rdmabuf/registration.hpp>

#include "c/objects.hpp"

namespace rdmabuf::testing {

/// Registers memory like register_memory(), through the C interface. The paths are tried in the
/// order of their values, and RegistrationOptions::trail is not set. Expects that the functions of
/// the C interface describe the region as the Registration does.
/// @throws Error with the errno value and the text that the C interface returns
inline rdmabuf::Registration register_by_c(std::span<const ProtectionDomain> pds,
                                           const Resolver& resolver, std::uintptr_t address,
                                           std::size_t length, const RegistrationOptions& options) {
    rdmabuf_resolver c_resolver{.external = nullptr, .resolver = resolver};
    rdmabuf_options given = RDMABUF_INIT(given);
    given.access = static_cast<int>(options.access);
    given.relaxed_ordering = options.relaxed_ordering ? 1 : 0;
    given.device_memory = options.device_memory ? 1 : 0;
    const auto bit_of = [](RegistrationPath path) { return 1 << static_cast<int>(path); };
    for (const RegistrationPath path : options.paths.paths()) {
        given.paths |= bit_of(path);
    }
    if (options.mapping) {
        given.mapping =
            *options.mapping == MappingKind::pcie ? RDMABUF_MAPPING_PCIE : RDMABUF_MAPPING_STANDARD;
    }
    given.has_iova = options.iova ? 1 : 0;
    given.iova = options.iova.value_or(0);
    std::vector<ibv_pd*> native;
    native.reserve(pds.size() + 1); // so that data() is not a null pointer
    for (const ProtectionDomain& pd : pds) {
        native.push_back(pd.native());
    }
    rdmabuf_region* region = nullptr;
    if (const int result =
            rdmabuf_register_many(&c_resolver, native.data(), native.size(),
                                  reinterpret_cast<const void*>(address), length, &given, &region);
        result != 0) {
        EXPECT_EQ(region, nullptr);
        EXPECT_THAT(rdmabuf_last_error(), ::testing::StartsWith("rdmabuf_register_many: "));
        throw Error(-result, "register_memory", rdmabuf_last_error());
    }
    const rdmabuf::Registration& registered = region->registration;
    EXPECT_EQ(rdmabuf_iova(region), registered.iova());
    for (std::size_t i = 0; i < pds.size(); ++i) {
        EXPECT_EQ(rdmabuf_mr(region, i), registered.native(i));
        EXPECT_EQ(rdmabuf_path(region, i), bit_of(registered.path(i)));
    }
    EXPECT_EQ(rdmabuf_mr(region, pds.size()), nullptr);
    EXPECT_EQ(rdmabuf_path(region, pds.size()), 0);
    EXPECT_EQ(rdmabuf_trail(region), to_string(registered.trail()));
    for (const Attempt& attempt : registered.trail()) {
        EXPECT_THAT(rdmabuf_trail_json(region),
                    ::testing::HasSubstr("\"call\": \"" + std::string(attempt.call) +
                                         "\", \"errno\": " + std::to_string(attempt.error)));
    }
    rdmabuf::Registration made = std::move(region->registration);
    EXPECT_EQ(rdmabuf_deregister(&region), 0);
    return made;
}

} // namespace rdmabuf::testing
