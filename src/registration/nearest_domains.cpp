// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/registration.hpp>

namespace rdmabuf {
namespace {

/// A protection domain, and the values that Topology::nearest() returns for its NIC: the position
/// in the list, and the rank (NICs that are equally near and equally fast have the same rank).
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
