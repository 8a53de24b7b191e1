// SPDX-License-Identifier: BSD-3-Clause
#include "objects/ah_numbers.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "objects/efa.hpp"

namespace softverbs {

namespace {

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

} // namespace

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

std::uint16_t find_ah_number(const Pd& pd, const ibv_gid& gid) noexcept {
    const auto& all = entries();
    const auto place = all.find(key_of(pd, gid));
    return place != all.end() ? place->second.number : efa::unknown_ah;
}

} // namespace softverbs
