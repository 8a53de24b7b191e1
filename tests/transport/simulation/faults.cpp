// SPDX-License-Identifier: BSD-3-Clause
// Faults of packets, ports and devices.
#include <softverbs/softverbs.h>

#include "world.hpp"

namespace rdmabuf::simulation {

void World::fault() {
    const std::uint64_t choice = random_.below(14);
    if (choice < 5) {
        const auto kind = random_.one_of({SOFTVERBS_PACKET_DROP, SOFTVERBS_PACKET_DELAY,
                                          SOFTVERBS_PACKET_DUPLICATE, SOFTVERBS_PACKET_CORRUPT});
        const auto nth = static_cast<unsigned>(1 + random_.below(20));
        log("fault " + std::to_string(kind) + " at packet " + std::to_string(nth));
        expect(softverbs_fail_packet(kind, nth, static_cast<unsigned>(1 + random_.below(20))) == 0,
               "a packet can fail");
        return;
    }
    if (choice < 9 && devices_ > 1) {
        port_is_down_ = !port_is_down_;
        log(port_is_down_ ? "port of device 1 down" : "port of device 1 up");
        expect(softverbs_set_port_state(1, 1, port_is_down_ ? IBV_PORT_DOWN : IBV_PORT_ACTIVE) == 0,
               "a port can change");
        if (port_is_down_ && random_.one_in(2)) {
            pass_time(random_.below(8 * second));
        }
        return;
    }
    const std::size_t which = random_.below(nodes_.size());
    if (choice < 13) {
        const std::vector<std::size_t> open = links_of(which);
        if (!open.empty()) {
            const std::size_t at = open[random_.below(open.size())];
            fail_queue_pair(at, side_of(at, which));
        }
        return;
    }
    Node& node = *nodes_[which];
    const std::size_t device = random_.below(devices_);
    if (node.dead || (device == 0 && !random_.one_in(4))) {
        return;
    }
    log("device " + std::to_string(device) + " of node " + std::to_string(which) + " fails");
    softverbs_fail_device(node.devices[device].native());
    if (device == 0) {
        node.dead = true;
        for (const auto& link : links_) {
            link->may_fail =
                link->may_fail || link->sides[0].node == which || link->sides[1].node == which;
        }
    }
}

void World::fail_queue_pair(std::size_t at, std::size_t side) {
    Link& link = *links_[at];
    transport::detail::RailSet& rails = link.sides[side].state->rails();
    const std::size_t rail = random_.below(rails.size());
    if ((rail == 0 && !random_.one_in(10)) || rails.broken() != 0 || !rails.is_used(rail)) {
        return;
    }
    log("queue pair " + std::to_string(rail) + " of link " + std::to_string(at) +
        " fails at node " + std::to_string(link.sides[side].node));
    link.may_fail = link.may_fail || rail == 0;
    static_cast<void>(attempt([&] { rails[rail].queue_pair.abort(); }));
}

} // namespace rdmabuf::simulation
