// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include <rdmabuf/topology.hpp>

namespace rdmabuf {
namespace {

/// Returns the key by which ranked() sorts NICs. An unknown NUMA distance sorts after every known
/// distance, and an unknown bandwidth after every known bandwidth. NICs with equal keys keep their
/// order.
auto order(const RankedNic& nic) {
    return std::tuple(!nic.usable, nic.path.type,
                      nic.path.numa_distance.value_or(std::numeric_limits<unsigned>::max()),
                      nic.path.hops, -nic.path.bandwidth.value_or(0));
}

/// A group of NICs that are equally near to the memory and equally fast: the names of the NICs, and
/// the type of the path between these NICs and the memory.
struct EqualNics {
    PathType type = PathType::unknown;
    std::set<std::string> names;

    friend bool operator==(const EqualNics&, const EqualNics&) = default;
};

/// Divides a list of NICs into groups of equal RankedNic::rank: NICs that are equally near to the
/// memory and equally fast. The result is indexed by this rank.
std::vector<EqualNics> groups_of(const std::vector<RankedNic>& list) {
    std::vector<EqualNics> groups;
    for (const RankedNic& nic : list) {
        groups.resize(nic.rank + 1);
        groups.back().type = nic.path.type;
        groups.back().names.insert(nic.name);
    }
    return groups;
}

} // namespace

std::vector<RankedNic> Topology::ranked(const MemoryLocation& memory) const {
    std::vector<RankedNic> list;
    list.reserve(nics_.size());
    for (const Nic& nic : nics_) {
        list.push_back(
            {.name = nic.name, .path = path(memory, nic), .usable = nic.active.value_or(true)});
    }
    std::stable_sort(list.begin(), list.end(), [](const RankedNic& one, const RankedNic& other) {
        return order(one) < order(other);
    });
    for (std::size_t i = 1; i < list.size(); ++i) {
        list[i].rank = list[i - 1].rank + (order(list[i - 1]) == order(list[i]) ? 0 : 1);
    }
    return list;
}

std::vector<RankedNic> Topology::nearest(const MemoryLocation& memory) const {
    std::vector<RankedNic> list = ranked(memory);
    const PciFunction* const function = memory.device ? find_pci_function(*memory.device) : nullptr;
    if (function == nullptr || !function->identity) {
        return list;
    }
    const std::vector<EqualNics> groups = groups_of(list);
    // Devices of one model, such as the GPUs of a machine, should not all prefer the same NIC.
    // Therefore the NICs of groups[i] are rotated by index[i] positions: the number of PCI
    // functions of the same model that have a lower PCI address and the same group of equally near
    // NICs.
    std::vector<std::size_t> index(groups.size());
    for (const PciFunction& other : functions_) {
        if (other.address == function->address) {
            break; // The functions are sorted by address.
        }
        if (other.identity != function->identity) {
            continue;
        }
        const auto others = groups_of(ranked({.device = other.address, .c2c = memory.c2c}));
        for (std::size_t i = 0; i < groups.size(); ++i) {
            index[i] += std::find(others.begin(), others.end(), groups[i]) != others.end() ? 1 : 0;
        }
    }
    auto first = list.begin();
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const std::size_t size = groups[i].names.size();
        const auto last = first + static_cast<std::ptrdiff_t>(size);
        std::rotate(first, first + static_cast<std::ptrdiff_t>(index[i] % size), last);
        first = last;
    }
    return list;
}

} // namespace rdmabuf
