// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/topology.hpp>

#include "memory/exporter_calls.hpp"
#include "registration/registration_walk.hpp"

namespace rdmabuf {

const char* to_string(RegistrationPath path) noexcept {
    switch (path) {
        case RegistrationPath::dmabuf:
            return "dmabuf";
        case RegistrationPath::dmabuf_data_direct:
            return "dmabuf_data_direct";
        case RegistrationPath::peermem:
            return "peermem";
        case RegistrationPath::host:
            return "host";
        case RegistrationPath::on_demand:
            return "on_demand";
    }
    return "unknown";
}

std::string to_string(const Attempt& attempt) {
    std::string text = to_string(attempt.path);
    text.append(": ").append(attempt.call);
    if (!attempt.device.empty()) {
        text.append(" on ").append(attempt.device);
    }
    if (!attempt.exporter.empty()) {
        text.append(", memory of ").append(attempt.exporter);
        if (attempt.mapping == MappingKind::pcie) {
            text += " mapped for PCIe";
            if (*attempt.reason != '\0') {
                text.append(" (").append(attempt.reason).append(")");
            }
        }
    }
    text.append(": ").append(attempt.worked() ? "registered" : describe_errno(attempt.error));
    if (!attempt.meaning.empty()) {
        text.append(": ").append(attempt.meaning);
    }
    if (!attempt.remedy.empty()) {
        text.append("; ").append(attempt.remedy);
    }
    return text;
}

std::string to_string(const Trail& trail) {
    if (trail.empty()) {
        return "nothing was tried.";
    }
    std::string text;
    for (const Attempt& attempt : trail) {
        text.append(text.empty() ? "" : " ").append(to_string(attempt)).append(".");
    }
    return text;
}

const char* to_string(RegistrationState state) noexcept {
    switch (state) {
        case RegistrationState::registered:
            return "registered";
        case RegistrationState::revoked:
            return "revoked";
        case RegistrationState::closed:
            return "closed";
    }
    return "unknown";
}

bool may_mean_revocation(const WorkCompletion& completion) noexcept {
    switch (completion.status) {
        case IBV_WC_LOC_PROT_ERR:
        case IBV_WC_LOC_ACCESS_ERR:
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_REM_OP_ERR:
            return true;
        default:
            return false;
    }
}

bool may_mean_revocation(const AsyncEvent& event) noexcept {
    switch (event.type) {
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_DEVICE_FATAL:
            return true;
        default:
            return false;
    }
}

void RegisteredMemory::mark_revoked() noexcept {
    if (set_ != nullptr) {
        auto expected = RegistrationState::registered;
        set_->state.compare_exchange_strong(expected, RegistrationState::revoked,
                                            std::memory_order_relaxed);
    }
}

RegistrationState RegisteredMemory::verify() {
    // Memory that no exporter knows cannot be verified. Pinned host memory that is registered
    // without a dma-buf is not verified, because it can still exist when the exporter no longer
    // finds it: the program may only have unregistered it from the driver of the GPU. Managed
    // memory on the path on_demand is verified: it does not exist after its allocation was freed.
    if (state() != RegistrationState::registered || !set_->allocation ||
        (!detail::is_dmabuf(path()) && set_->allocation->kind == MemoryKind::pinned_host)) {
        return state();
    }
    const std::shared_ptr<const Exporter> exporter = set_->source.lock();
    if (exporter == nullptr) {
        throw Error(ENOENT, "RegisteredMemory::verify",
                    "the exporter '" + set_->exporter +
                        "' was destroyed: keep the exporter, or a Resolver that has it, until the "
                        "registration is closed");
    }
    const std::optional<Allocation> now =
        detail::find_range(*exporter, set_->address, set_->length);
    const std::uint64_t generation = set_->allocation->generation;
    const bool replaced = now && now->generation != generation && generation != 0;
    if (!now || replaced) {
        mark_revoked();
    }
    return state();
}

void RegisteredMemory::close() {
    if (set_ == nullptr) {
        return;
    }
    std::optional<Error> first;
    for (detail::AnyRegion& region : set_->regions) {
        try {
            region.close();
        } catch (const Error& error) {
            if (!first) {
                first = error;
            }
        }
    }
    if (first) {
        throw Error(*first);
    }
    set_->state.store(RegistrationState::closed, std::memory_order_relaxed);
}

void RegisteredMemory::refuse(const char* function) const {
    if (state() == RegistrationState::revoked) {
        throw Error(
            ENODEV, function,
            "the memory was revoked, and the keys are invalid: close() the registration, and "
            "register the memory again");
    }
    throw Error(EBADF, function, "the registration was closed, released or moved from");
}

PathOrder::PathOrder(std::span<const RegistrationPath> paths) {
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

/// The maximum number of ranges that are exported at the same time. Each exported range holds an
/// open file descriptor for each mapping, and one more for each NIC if Allocation::single_import is
/// set and there are several NICs.
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

namespace {

/// A protection domain, and where Topology::nearest() lists its NIC. NICs that are equally near and
/// equally fast have the same rank.
struct Candidate {
    const ProtectionDomain* pd = nullptr;
    std::size_t position = std::numeric_limits<std::size_t>::max();
    unsigned rank = std::numeric_limits<unsigned>::max();
};

} // namespace

std::vector<ProtectionDomain> nearest_domains(std::span<const ProtectionDomain> pds,
                                              const Topology& topology,
                                              const MemoryLocation& memory, std::size_t most) {
    const std::vector<RankedNic> nics = topology.nearest(memory);
    std::vector<Candidate> candidates;
    candidates.reserve(pds.size());
    for (const ProtectionDomain& pd : pds) {
        static_cast<void>(detail::native_of(pd, "nearest_domains", "ProtectionDomain"));
        Candidate candidate{.pd = &pd};
        const auto nic = std::ranges::find(nics, pd.context().device_name(), &RankedNic::name);
        if (nic != nics.end()) {
            candidate.position = static_cast<std::size_t>(std::distance(nics.begin(), nic));
            candidate.rank = nic->rank;
        }
        candidates.push_back(candidate);
    }
    std::ranges::stable_sort(candidates, {}, &Candidate::position);
    std::vector<ProtectionDomain> nearest;
    for (const Candidate& candidate : candidates) {
        const bool wanted =
            most != 0 ? nearest.size() < most : candidate.rank == candidates.front().rank;
        if (wanted) {
            nearest.push_back(*candidate.pd);
        }
    }
    return nearest;
}

} // namespace rdmabuf
