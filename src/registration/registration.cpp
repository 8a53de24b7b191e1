// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/registration.hpp>

#include "registration/registration_walk.hpp"

namespace rdmabuf {

PathOrder::PathOrder(std::initializer_list<RegistrationPath> paths) {
    for (const RegistrationPath path : paths) {
        if (has(path)) {
            throw Error(EINVAL, "PathOrder",
                        "options contradict each other: the path " + std::string(to_string(path)) +
                            " is listed twice");
        }
        paths_[count_++] = path; // without one twice there are no more than fit
    }
}

bool PathOrder::has(RegistrationPath path) const noexcept {
    return std::ranges::find(paths(), path) != paths().end();
}

Registration register_memory(std::span<const ProtectionDomain> pds, const Resolver& resolver,
                             std::uintptr_t address, std::size_t length,
                             const RegistrationOptions& options) {
    for (const ProtectionDomain& pd : pds) {
        static_cast<void>(detail::native_of(pd, "register_memory", "ProtectionDomain"));
    }
    detail::RegistrationWalk walk({.pds = pds,
                                   .resolver = resolver,
                                   .address = address,
                                   .length = length,
                                   .options = options,
                                   .chunk = 0,
                                   .function = "register_memory"});
    return Registration(walk.run());
}

} // namespace rdmabuf
