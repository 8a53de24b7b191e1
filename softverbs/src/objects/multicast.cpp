// SPDX-License-Identifier: BSD-3-Clause
#include "objects/multicast.hpp"

#include <endian.h>
#include <errno.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "objects/process.hpp"

namespace softverbs {

namespace {

struct Attachment {
    Qp* qp;
    ibv_gid gid;
    std::uint16_t lid;
};

std::vector<Attachment>& attachments() {
    static auto* const all = new std::vector<Attachment>;
    return *all;
}

bool same(const ibv_gid& one, const ibv_gid& other) noexcept {
    return std::memcmp(&one, &other, sizeof one) == 0;
}

auto find(const Qp& qp, const ibv_gid& gid, std::uint16_t lid) {
    return std::ranges::find_if(attachments(), [&](const Attachment& one) {
        return one.qp == &qp && one.lid == lid && same(one.gid, gid);
    });
}

/// Returns whether the LID is a multicast LID. Returns true for any value on an Ethernet port,
/// because Ethernet ports have no LIDs.
bool is_multicast_lid(const Qp& qp, std::uint16_t lid) {
    constexpr std::uint16_t first = 0xc000;
    constexpr std::uint16_t permissive = 0xffff;
    const Port* const port = device_of(qp.qp_base).port(1);
    return port == nullptr || port->attributes.link_layer == IBV_LINK_LAYER_ETHERNET ||
           (lid >= first && lid != permissive);
}

} // namespace

int attach_multicast(Qp& qp, const ibv_gid& gid, std::uint16_t lid) {
    const ibv_device_attr& limits = device_of(qp.qp_base).attributes.orig_attr;
    if (limits.max_mcast_grp == 0) {
        return EOPNOTSUPP;
    }
    if (qp.type() != IBV_QPT_UD || !is_multicast(gid) || !is_multicast_lid(qp, lid)) {
        return EINVAL;
    }
    if (find(qp, gid, lid) != attachments().end()) {
        return 0;
    }
    const auto in_group = std::ranges::count_if(
        attachments(), [&gid](const Attachment& one) { return same(one.gid, gid); });
    if (in_group >= limits.max_mcast_qp_attach ||
        attachments().size() >= static_cast<std::size_t>(limits.max_total_mcast_qp_attach)) {
        return ENOMEM;
    }
    attachments().push_back({&qp, gid, lid});
    return 0;
}

int detach_multicast(Qp& qp, const ibv_gid& gid, std::uint16_t lid) {
    const auto found = find(qp, gid, lid);
    if (found == attachments().end()) {
        return EINVAL;
    }
    attachments().erase(found);
    return 0;
}

bool is_attached(const Qp& qp) {
    return std::ranges::any_of(attachments(),
                               [&qp](const Attachment& one) { return one.qp == &qp; });
}

std::vector<Qp*> multicast_members(const ibv_gid& gid) {
    std::vector<Qp*> members;
    for (const Attachment& one : attachments()) {
        if (same(one.gid, gid) && std::ranges::find(members, one.qp) == members.end()) {
            members.push_back(one.qp);
        }
    }
    return members;
}

} // namespace softverbs
