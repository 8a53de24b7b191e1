// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "objects/efa.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

namespace {

// Address handle numbers of the device profile efa. As on EFA, all address handles of a protection
// domain with the same destination GID have the same number. If the receiver has an address handle
// for the sender, ibv_wc::slid of a receive completion is the number of this address handle.
using Key = std::pair<const Pd*, std::array<std::uint8_t, 16>>;
struct Entry {
    std::uint16_t number = 0;
    unsigned handles = 0;
};

Key key_of(const Pd& pd, const ibv_gid& gid) noexcept {
    Key key{pd.protection, {}};
    std::ranges::copy(gid.raw, key.second.begin());
    return key;
}

std::map<Key, Entry>& entries() {
    static std::map<Key, Entry> all;
    return all;
}

/// Returns the number for a new address handle with the destination GID @p gid. Returns no value if
/// all numbers are in use.
std::optional<std::uint16_t> take_ah_number(const Pd& pd, const ibv_gid& gid) {
    auto& all = entries();
    const auto [place, is_new] = all.try_emplace(key_of(pd, gid));
    if (is_new) {
        const auto is_used = [&](std::uint16_t number) {
            return std::ranges::any_of(all, [&](const auto& other) {
                return other.second.handles != 0 && other.second.number == number;
            });
        };
        std::uint16_t number = 0;
        while (number != efa::unknown_ah && is_used(number)) {
            ++number;
        }
        if (number == efa::unknown_ah) {
            all.erase(place);
            return std::nullopt;
        }
        place->second.number = number;
    }
    ++place->second.handles;
    return place->second.number;
}

void release_ah_number(const Pd& pd, const ibv_gid& gid) noexcept {
    auto& all = entries();
    const auto place = all.find(key_of(pd, gid));
    if (place != all.end() && --place->second.handles == 0) {
        all.erase(place);
    }
}

} // namespace

std::uint16_t find_ah_number(const Pd& pd, const ibv_gid& gid) noexcept {
    const auto& all = entries();
    const auto place = all.find(key_of(pd, gid));
    return place != all.end() ? place->second.number : efa::unknown_ah;
}

namespace {

bool is_zero(const ibv_gid& gid) {
    return std::ranges::all_of(gid.raw, [](std::uint8_t byte) { return byte == 0; });
}

} // namespace

int check_address(Device& device, const ibv_ah_attr& address) {
    const Port* port = device.port(address.port_num);
    if (port == nullptr) {
        return EINVAL;
    }
    if (address.is_global == 0) {
        // Without a GRH, the destination is a LID. Reject an Ethernet port, because it has no LIDs.
        // Reject LID 0, because it is reserved.
        return port->attributes.link_layer != IBV_LINK_LAYER_INFINIBAND || address.dlid == 0
                   ? EINVAL
                   : 0;
    }
    if (address.grh.sgid_index >= port->gids.size() ||
        is_zero(port->gids[address.grh.sgid_index].gid) || is_zero(address.grh.dgid)) {
        return EINVAL;
    }
    return 0;
}

Ah* create_ah(Pd& pd, const ibv_ah_attr& attributes) {
    if (const int error = check_address(device_of(pd), attributes); error != 0) {
        return fail(error);
    }
    if (!may_create(SOFTVERBS_AH, device_of(pd).attributes.orig_attr.max_ah)) {
        return fail(ENOMEM);
    }
    auto ah = std::make_unique<Ah>();
    if (device_of(pd).rules.is_efa) {
        const auto number = take_ah_number(pd, attributes.grh.dgid);
        if (!number) {
            return fail(ENOMEM);
        }
        ah->number = *number;
    }
    static std::uint32_t handles = 0;
    ah->context = pd.context;
    ah->pd = &pd;
    ah->handle = ++handles;
    ah->attributes = attributes;
    ++pd.users;
    count(context_of(pd), SOFTVERBS_AH, 1);
    return ah.release();
}

int destroy_ah(Ah& ah) {
    if (device_of(ah).rules.is_efa) {
        release_ah_number(*static_cast<Pd*>(ah.pd), ah.attributes.grh.dgid);
    }
    --static_cast<Pd*>(ah.pd)->users;
    count(context_of(ah), SOFTVERBS_AH, -1);
    delete &ah;
    return 0;
}

} // namespace softverbs
