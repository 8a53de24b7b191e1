// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

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
        paths_[count_++] = path; // Each path is listed once at most: the array is large enough.
    }
}

bool PathOrder::has(RegistrationPath path) const noexcept {
    return std::ranges::find(paths(), path) != paths().end();
}

namespace {

void check_pds(std::span<const ProtectionDomain> pds, const char* function) {
    for (const ProtectionDomain& pd : pds) {
        static_cast<void>(detail::native_of(pd, function, "ProtectionDomain"));
    }
}

/// The maximum number of ranges that are exported at the same time. Each exported range holds one
/// or two open file descriptors.
constexpr std::size_t most_exported_ranges = 64;

/// Registers the requests in the order of @p order, a list of indexes into @p requests.
/// @return the results, in the order of @p requests
std::vector<std::unique_ptr<detail::RegisteredSet>> register_in_order(
    const std::vector<detail::RegistrationRequest>& requests, std::span<const std::size_t> order,
    unsigned threads) {
    std::vector<std::unique_ptr<detail::RegisteredSet>> made(requests.size());
    while (!order.empty()) {
        const auto part = order.first(std::min(order.size(), most_exported_ranges));
        std::vector<detail::RegistrationWalk> walks;
        walks.reserve(part.size());
        for (const std::size_t i : part) {
            walks.emplace_back(requests[i]);
        }
        detail::run_walks(walks, threads);
        for (std::size_t i = 0; i < part.size(); ++i) {
            made[part[i]] = walks[i].take();
        }
        order = order.subspan(part.size());
    }
    return made;
}

} // namespace

Registration register_memory(std::span<const ProtectionDomain> pds, const Resolver& resolver,
                             std::uintptr_t address, std::size_t length,
                             const RegistrationOptions& options) {
    constexpr const char* function = "register_memory";
    check_pds(pds, function);
    detail::RegistrationWalk walk({.pds = pds,
                                   .resolver = resolver,
                                   .address = address,
                                   .length = length,
                                   .options = options,
                                   .chunk = 0,
                                   .function = function});
    detail::run_walks({&walk, 1}, options.threads);
    Registration made(walk.take());
    if (options.trail != nullptr) {
        *options.trail = made.trail();
    }
    return made;
}

std::vector<Registration> register_ranges(std::span<const ProtectionDomain> pds,
                                          const Resolver& resolver,
                                          std::span<const AddressRange> ranges,
                                          const RegistrationOptions& options) {
    constexpr const char* function = "register_ranges";
    check_pds(pds, function);
    if (options.iova && ranges.size() > 1) {
        throw Error(EINVAL, function,
                    "options contradict each other: several ranges, and one iova; register the "
                    "ranges one by one");
    }
    std::vector<detail::RegistrationRequest> requests;
    requests.reserve(ranges.size());
    for (const AddressRange& range : ranges) {
        requests.push_back({.pds = pds,
                            .resolver = resolver,
                            .address = range.address,
                            .length = range.length,
                            .options = options,
                            .chunk = 0,
                            .function = function});
        detail::check_request(requests.back());
    }
    // Shorter ranges are registered first, because this order is the fastest on EFA. On EFA, the
    // time to register device memory grows with the number of bytes that are already registered,
    // and does not depend on the length of the range.
    std::vector<std::size_t> order(ranges.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return ranges[i].length; });
    auto sets = register_in_order(requests, order, options.threads);
    std::vector<Registration> made;
    made.reserve(sets.size());
    Trail trail;
    for (std::unique_ptr<detail::RegisteredSet>& set : sets) {
        for (const Attempt& attempt : set->trail) {
            trail.add(attempt);
        }
        made.push_back(Registration(std::move(set)));
    }
    if (options.trail != nullptr) {
        *options.trail = std::move(trail);
    }
    return made;
}

} // namespace rdmabuf
