// SPDX-License-Identifier: BSD-3-Clause
// Faults of packets, ports and devices.
#include <softverbs/softverbs.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <set>

#include "world.hpp"

namespace rdmabuf::simulation {

namespace {

// The state of post(). It is global, because a run has one World.
decltype(ibv_context_ops::post_send) real_post_send = nullptr;
Random* lies_random = nullptr;
std::set<const ibv_context*> liars; // NOLINT(cert-err58-cpp)
/// The number of calls until ibv_post_send(3) fails once with ENOMEM; 0: no call fails.
std::uint64_t calls_until_full = 0;

/// Changes one bit of a message, or of immediate data.
void change(ibv_send_wr& work) {
    if (work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        work.imm_data ^= 1U << lies_random->below(32);
    } else if (work.opcode == IBV_WR_SEND && work.num_sge > 0) {
        constexpr std::uint64_t longest = 64;
        const std::uint64_t bytes = std::min<std::uint64_t>(work.sg_list[0].length, longest);
        // NOLINTNEXTLINE(*-no-int-to-ptr)
        auto* const message = reinterpret_cast<std::uint8_t*>(work.sg_list[0].addr);
        const auto bit = static_cast<unsigned char>(1U << lies_random->below(8));
        message[lies_random->below(bytes)] ^= bit;
    }
}

int post(ibv_qp* queue_pair, ibv_send_wr* work, ibv_send_wr** failed) {
    if (calls_until_full > 0 && --calls_until_full == 0) {
        *failed = work;
        return ENOMEM;
    }
    const bool lies = liars.contains(queue_pair->context);
    for (ibv_send_wr* i = work; i != nullptr && lies; i = i->next) {
        if (lies_random->one_in(8)) {
            change(*i);
        }
    }
    return real_post_send(queue_pair, work, failed);
}

} // namespace

void World::watch_posts(const Node& node) {
    for (const Context& device : node.devices) {
        real_post_send = device.native()->ops.post_send;
        device.native()->ops.post_send = post;
    }
}

void World::fault() {
    if (first_port_is_down_) {
        return;
    }
    const std::uint64_t choice = random_.below(20);
    if (choice >= 18) {
        calls_until_full = 1 + random_.below(40);
        log("ibv_post_send fails in call " + std::to_string(calls_until_full));
        return;
    }
    if (choice < 5) {
        const auto kind = random_.one_of({SOFTVERBS_PACKET_DROP, SOFTVERBS_PACKET_DELAY,
                                          SOFTVERBS_PACKET_DUPLICATE, SOFTVERBS_PACKET_CORRUPT});
        const auto nth = static_cast<unsigned>(1 + random_.below(20));
        log("fault " + std::to_string(kind) + " at packet " + std::to_string(nth));
        expect(softverbs_fail_packet(kind, nth, static_cast<unsigned>(1 + random_.below(20))) == 0,
               "a packet can fail");
        return;
    }
    if (choice == 5) {
        take_down_first_port();
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
    if (nodes_[which]->dead || computes(*nodes_[which])) {
        return;
    }
    if (choice == 13) {
        fail_device(which);
    } else if (choice < 17) {
        revoke(which);
    } else if (random_.one_in(3)) {
        lie(which);
    }
}

void World::take_down_first_port() {
    // A device repeats packets for longer than the short times.
    const std::uint64_t time =
        random_.one_of({millisecond, 20 * millisecond, 100 * millisecond, 20 * second});
    const bool is_long = time > second;
    log("port of device 0 down for " + std::to_string(time) + " ns");
    expect(softverbs_set_port_state(0, 1, IBV_PORT_DOWN) == 0, "a port can change");
    if (is_long) {
        for (const auto& link : links_) {
            link->may_fail = true;
        }
    }
    first_port_is_down_ = true;
    for (std::uint64_t actions = random_.below(20); actions > 0; --actions) {
        const std::size_t which = random_.below(nodes_.size());
        if (is_long) { // Some actions take longer than the short times.
            act();
        } else if (!computes(*nodes_[which])) {
            send(which);
        }
        softverbs_advance(random_.below(20 * microsecond));
    }
    pass_time(time);
    for (std::size_t i = 0; i < nodes_.size() && is_long; ++i) {
        // A program that has computed has only now found out that the port is down.
        const bool has_waited =
            !nodes_[i]->dead && softverbs_now() > nodes_[i]->computes_until + 10 * second;
        for (const std::size_t at : links_of(i)) {
            const Channel& channel = *links_[at]->sides[side_of(at, i)].channel;
            if (channel.state().value() != 0 && channel.in_flight() != 0 && has_waited) {
                for (const auto& operation : nodes_[i]->operations) {
                    log("has not ended: #" + std::to_string(operation->id));
                }
                fail(
                    "the requests of a failed channel end although the port stays down, but link " +
                    std::to_string(at) + " at node " + std::to_string(i) + " has " +
                    std::to_string(channel.in_flight()));
            }
        }
    }
    first_port_is_down_ = false;
    expect(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE) == 0, "a port can change");
}

void World::fail_device(std::size_t which) {
    Node& node = *nodes_[which];
    const std::size_t device = random_.below(devices_);
    if (device == 0 && !random_.one_in(2)) {
        return;
    }
    if (device == 0) {
        post_receive(which, true, random_.below(4), transport::full_mask, slot_size, std::nullopt);
    }
    log("device " + std::to_string(device) + " of node " + std::to_string(which) + " fails");
    softverbs_fail_device(node.devices[device].native());
    node.has_failed_device = true;
    if (device == 0) {
        for (const std::size_t link : links_of(which)) {
            links_[link]->may_fail = true;
        }
        if (devices_ > 1 && random_.one_in(2)) {
            log("the program vanishes");
            softverbs_fail_device(node.devices[1].native());
        } else {
            // The endpoint detects the failure in this time. A receive that has matched a message
            // ends a second later, because completions of its channel may still arrive.
            pass_time(2 * second);
            for (const auto& operation : node.operations) {
                if (operation->from_any) {
                    fail("receives from any channel end if the first device fails, but #" +
                         std::to_string(operation->id) + " has not");
                }
            }
        }
        node.dead = true;
    }
}

void World::revoke(std::size_t which) {
    Node& node = *nodes_[which];
    const bool sends = random_.one_in(2);
    std::unique_ptr<Operation> made = operation(which, sends ? Kind::send : Kind::receive);
    if (!made) {
        return;
    }
    made->revoked = std::make_unique<RevokedMemory>(*node.endpoint, memfds_->allocate(slot_size));
    const auto address = made->revoked->buffer.address();
    auto memory = node.endpoint->register_memory(reinterpret_cast<const void*>(address),
                                                 slot_size); // NOLINT(*-no-int-to-ptr)
    if (!memory.ok()) {
        if (!node.has_failed_device) {
            fail("memory can be registered: " + std::string(memory.message()));
        }
        return;
    }
    made->revoked->memory.emplace(*std::move(memory));
    const Memory& registered = *made->revoked->memory;
    auto* const at = reinterpret_cast<std::byte*>(address); // NOLINT(*-no-int-to-ptr)
    made->id = ++last_id_;
    made->tag = random_.below(4);
    made->length = random_.one_of({std::uint64_t{100}, std::uint64_t{slot_size}});
    Link& link = *links_[made->link];
    link.may_fail = true;
    Channel& channel = *link.sides[made->side].channel;
    void* const context = made->by_context ? made.get() : nullptr;
    std::error_code error;
    if (sends) {
        fill_pattern({at, made->length}, made->id);
        error = channel.isend(registered, at, made->length, made->tag, made->request, context);
    } else {
        error = channel.irecv(registered, at, made->length, made->tag, made->request, context);
    }
    if (!error && sends) {
        messages_[made->id] = {.tag = made->tag, .length = made->length};
        link.sides[1 - made->side].sent.push_back(made->id);
    }
    ibv_mr* const region = registered.state()->lease.registration().native();
    if (started(which, made, error)) {
        log("  its memory is revoked");
        expect(softverbs_revoke_mr(region) == 0, "memory can be revoked");
    }
}

void World::lie(std::size_t which) {
    Node& node = *nodes_[which];
    if (node.lies) {
        return;
    }
    log("node " + std::to_string(which) + " lies");
    node.lies = true;
    lies_random = &random_;
    for (const Context& device : node.devices) {
        liars.insert(device.native());
    }
    for (const std::size_t link : links_of(which)) {
        links_[link]->may_fail = true;
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
    // Start requests first, so that data is in flight when the queue pair fails.
    const std::size_t which = link.sides[side].node;
    for (std::uint64_t count = random_.below(4); count > 0 && !computes(*nodes_[which]); --count) {
        random_.one_in(2)
            ? send(which)
            : write(which, random_.one_of({Kind::put, Kind::put_notify, Kind::put_list}));
    }
    if (random_.one_in(2)) {
        // Let some packets arrive, and let the peer process them, before the failure.
        for (std::uint64_t steps = random_.below(200); steps > 0 && softverbs_step() == 1;
             --steps) {
        }
        progress(link.sides[1 - side].node);
    }
    static_cast<void>(attempt([&] { rails[rail].queue_pair.abort(); }));
    if (random_.one_in(2) && !computes(*nodes_[which])) {
        // Write with a notification, after data that the queue pair may not have transferred.
        progress(which);
        write(which, Kind::put_notify);
    }
}

} // namespace rdmabuf::simulation
