// SPDX-License-Identifier: BSD-3-Clause
// Checks what the transport has to guarantee.
#include <softverbs/softverbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

#include "world.hpp"

namespace rdmabuf::simulation {
namespace {

/// Returns true if the bytes are those that fill_pattern() writes for @p id.
bool has_pattern(std::span<const std::byte> bytes, std::uint64_t id) {
    std::vector<std::byte> wanted(bytes.size());
    fill_pattern(wanted, id);
    return equal(bytes, wanted);
}

bool accepts(const Receive& receive, Tag tag) {
    return ((receive.tag ^ tag) & receive.mask) == 0;
}

/// After the last action and the last fault, each request ends in this time.
constexpr std::uint64_t longest_end = 60 * second;

} // namespace

void World::ended(std::size_t which, Operation& operation, const Completion& completion) {
    Node& node = *nodes_[which];
    const int error = completion.error.value();
    log(std::to_string(which) + ": #" + std::to_string(operation.id) + " ended with " +
        std::to_string(error) + ", " + std::to_string(completion.bytes) + " bytes");
    std::size_t at = operation.link;
    if (operation.from_any && completion.channel != 0) {
        const std::vector<std::size_t> mine = links_of(which);
        const auto found = std::ranges::find_if(mine, [&](std::size_t link) {
            return links_[link]->sides[side_of(link, which)].number == completion.channel;
        });
        if (found == mine.end()) {
            // The program has closed the channel of the message.
            release_slot(node, operation.slot[0]);
            return;
        }
        at = *found;
    }
    Link& link = *links_[at];
    operation.link = at;
    operation.side = side_of(at, which);
    if (lies(link) || operation.revoked) {
        for (const std::size_t slot : operation.slot) {
            release_slot(node, slot);
        }
        return;
    }
    Side& peer = link.sides[1 - operation.side];
    const bool refused =
        error == EMSGSIZE && (operation.kind == Kind::receive || operation.kind == Kind::send);
    // The sender of an eager message does not learn that its receive was too short.
    if (refused && operation.kind == Kind::receive && completion.bytes > eager_limit) {
        ++link.sides[operation.side].refused;
    } else if (refused && operation.kind == Kind::send && operation.length > eager_limit) {
        --peer.refused;
    }
    if (error != 0 && !(error == ECANCELED && operation.cancelled) && !refused && !link.may_fail) {
        fail("a request of a healthy channel succeeds, but #" + std::to_string(operation.id) +
             " ended with: " + completion.error.message() + " (" +
             link.sides[operation.side].channel->reason() + ")");
    }
    if (error == 0 || error == EMSGSIZE) {
        switch (operation.kind) {
            case Kind::receive:
                received(which, operation, completion);
                break;
            case Kind::get:
            case Kind::get_list:
                for (std::size_t i = 0; i < operation.notice.count; ++i) {
                    const std::span<std::byte> bytes =
                        node.bytes(operation.slot[i]).first(operation.notice.length[i]);
                    expect(has_pattern(bytes, operation.notice.id[i]),
                           "a read returns what was written");
                }
                break;
            case Kind::atomic: {
                std::uint64_t result = 0;
                std::memcpy(&result, node.bytes(operation.slot[0]).data(), sizeof result);
                expect(result == operation.expected, "each atomic operation is executed once");
                break;
            }
            case Kind::fence: {
                const Side& target = link.sides[1 - operation.side];
                for (std::size_t cell = 0; cell < cells && target.channel; ++cell) {
                    expect(target.cell_id[cell] > operation.id ||
                               (target.cell[cell] != Side::Cell::writing &&
                                target.cell[cell] != Side::Cell::written) ||
                               has_pattern(nodes_[target.node]
                                               ->bytes(target.window[cell])
                                               .first(target.cell_length[cell]),
                                           target.cell_id[cell]),
                           "a fence ends after the data of all earlier writes has arrived");
                }
                break;
            }
            default:
                break;
        }
    }
    if (operation.kind == Kind::put || operation.kind == Kind::put_list) {
        Side& target = link.sides[1 - operation.side];
        for (std::size_t i = 0; i < operation.notice.count && !operation.notice.sent; ++i) {
            if (error == 0 && peer.channel) {
                target.cell[operation.notice.cell[i]] = Side::Cell::written;
            }
        }
        for (std::size_t i = 0; i < operation.notice.count && error == ECANCELED; ++i) {
            target.cell[operation.notice.cell[i]] = Side::Cell::free;
        }
    }
    for (const std::size_t slot : operation.slot) {
        release_slot(node, slot);
    }
}

void World::received(std::size_t which, Operation& operation, const Completion& completion) {
    Node& node = *nodes_[which];
    Side& side = links_[operation.link]->sides[operation.side];
    const Receive receive = {.tag = operation.tag, .mask = operation.mask};
    expect(accepts(receive, completion.tag), "a message has a tag that its receive accepts");
    const bool whole = completion.error.value() == 0;
    expect(whole == (completion.bytes <= operation.length),
           "a receive ends with EMSGSIZE if the message is longer than its buffer");
    std::uint64_t id = 0;
    const bool identified = whole && completion.bytes >= sizeof id;
    if (identified) {
        std::memcpy(&id, node.bytes(operation.slot[0]).data(), sizeof id);
        expect(std::ranges::find(side.sent, id) != side.sent.end(),
               "the bytes of a message are those that the peer has sent");
    } else {
        const auto found = std::ranges::find_if(side.sent, [&](std::uint64_t candidate) {
            const Message& tried = messages_[candidate];
            return tried.receive == 0 && tried.tag == completion.tag &&
                   tried.length == completion.bytes;
        });
        expect(found != side.sent.end(), "a message without data was sent before");
        id = *found;
    }
    Message& message = messages_[id];
    expect(message.receive == 0, "a message arrives once");
    expect(message.length == completion.bytes && message.tag == completion.tag,
           "a message has the length and the tag with which it was sent");
    message.receive = operation.id;
    const std::span<std::byte> bytes = node.bytes(operation.slot[0]);
    const std::span<std::byte> model = node.model(operation.slot[0]);
    const std::size_t written = whole ? completion.bytes : 0;
    expect(has_pattern(bytes.first(written), id), "a message arrives whole");
    expect(equal(bytes.subspan(written), model.subspan(written)),
           "a receive writes to nothing but the bytes of its message");
    log("  message #" + std::to_string(id));
    if (!identified) {
        return;
    }
    // Of two messages, the earlier one ends the earlier receive, if both receives accept it.
    for (const std::uint64_t other_id : side.sent) {
        const Message& other = messages_[other_id];
        if (other_id == id || other.receive == 0 || other.length < sizeof id) {
            continue;
        }
        const bool before = other_id < id;
        const Message& earlier = before ? other : message;
        const Message& later = before ? message : other;
        expect(earlier.receive < later.receive || !accepts(receives_[later.receive], earlier.tag),
               "messages arrive in their order");
    }
}

void World::notified(std::size_t which, std::size_t at) {
    Node& node = *nodes_[which];
    Side& side = links_[at]->sides[side_of(at, which)];
    std::array<std::byte, 512> bytes{};
    for (;;) {
        const auto size = side.channel->notification(bytes);
        if (!size.ok()) {
            return;
        }
        if (lies(*links_[at])) {
            continue;
        }
        expect(!side.notices.empty(), "a notification arrives once");
        const Notice notice = side.notices.front();
        side.notices.pop_front();
        log(std::to_string(which) + ": notification #" + std::to_string(notice.id[0]) +
            " on link " + std::to_string(at));
        expect(
            *size == notice.size && has_pattern(std::span(bytes).first(notice.size), notice.id[0]),
            "notifications arrive whole and in their order");
        for (std::size_t cell = 0; cell < cells; ++cell) {
            const bool in_use =
                side.cell[cell] == Side::Cell::writing || side.cell[cell] == Side::Cell::written;
            const auto bytes_of_cell = node.bytes(side.window[cell]).first(side.cell_length[cell]);
            expect(!in_use || side.cell_id[cell] > notice.id[0] ||
                       has_pattern(bytes_of_cell, side.cell_id[cell]),
                   "the data of all earlier writes arrives before a notification");
        }
        for (std::size_t i = 0; i < notice.count; ++i) {
            const std::size_t slot = side.window[notice.cell[i]];
            expect(has_pattern(node.bytes(slot).first(notice.length[i]), notice.id[i]),
                   "all data arrives before its notification");
            // The program now uses the memory for something else: write new bytes.
            fill_pattern(node.bytes(slot), ++last_id_);
            node.remember(slot);
            side.cell[notice.cell[i]] = Side::Cell::reused;
        }
    }
}

void World::check_memory(std::size_t which) {
    Node& node = *nodes_[which];
    if (node.lies) {
        return; // Its wrong messages may direct writes of its peers to any address.
    }
    for (std::size_t slot = 0; slot < slots; ++slot) {
        if (node.slot[slot] == Node::Slot::free || node.slot[slot] == Node::Slot::read) {
            expect(equal(node.bytes(slot), node.model(slot)),
                   "nothing is written outside of the life of a request");
        }
    }
    for (const std::size_t link : links_of(which)) {
        const Side& side = links_[link]->sides[side_of(link, which)];
        for (std::size_t cell = 0; cell < cells; ++cell) {
            if (side.cell[cell] == Side::Cell::reused) {
                expect(equal(node.bytes(side.window[cell]), node.model(side.window[cell])),
                       "nothing is written behind its notification");
            }
        }
    }
}

void World::check_links() {
    for (std::size_t i = 0; i < links_.size(); ++i) {
        Link& link = *links_[i];
        for (const Side& side : link.sides) {
            if (!link.may_fail && side.channel->state().value() != 0) {
                fail("a healthy channel does not fail, but link " + std::to_string(i) +
                     " has failed at node " + std::to_string(side.node) + ": " +
                     side.channel->reason());
            }
        }
    }
}

void World::finish() {
    log("no further action");
    finishing_ = true;
    softverbs_clear_faults();
    for (unsigned device = 0; device < devices_; ++device) {
        softverbs_set_port_state(device, 1, IBV_PORT_ACTIVE);
    }
    for (const auto& node : nodes_) {
        node->computes_until = 0;
    }
    // A request to a peer that lies may never end: close these channels.
    for (std::size_t i = 0; i < links_.size(); ++i) {
        for (std::size_t side = 0; side < 2; ++side) {
            if (lies(*links_[i]) && links_[i]->sides[side].channel) {
                close(i, side);
            }
        }
    }
    const auto is_missing = [&](const Link& link, const Side& side) {
        return !link.may_fail &&
               (!side.notices.empty() || std::ranges::any_of(side.sent, [&](std::uint64_t id) {
                   return messages_[id].receive == 0;
               }));
    };
    const auto is_restored = [&](const Link& link, const Side& side) {
        return options_.probation.count() == 0 || link.may_fail || side.state->rails().all_used() ||
               std::ranges::any_of(link.sides, [&](const Side& each) {
                   return nodes_[each.node]->has_failed_device;
               });
    };
    const std::uint64_t end = softverbs_now() + longest_end;
    bool quiet = false;
    while (!quiet) {
        pass_time(softverbs_now() + longest_end / 2 < end ? millisecond : 20 * millisecond);
        check_links();
        quiet = true;
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            Node& node = *nodes_[i];
            for (const std::size_t at : links_of(i)) {
                Link& link = *links_[at];
                Side& side = link.sides[side_of(at, i)];
                if (!node.dead) {
                    receive_arrived(i, at);
                }
                quiet = quiet && !is_missing(link, side) && is_restored(link, side);
            }
            quiet = quiet &&
                    (node.dead || std::ranges::all_of(node.operations, [&](const auto& operation) {
                         return operation->kind == Kind::receive;
                     }));
        }
        if (softverbs_now() > end) {
            missing();
        }
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        for (const auto& operation : nodes_[i]->operations) {
            if (operation->kind == Kind::receive && !nodes_[i]->dead) {
                cancel(i, *operation);
            }
        }
    }
    const std::uint64_t cancelled = softverbs_now() + longest_end;
    const auto waits = [](const auto& node) { return !node->dead && !node->operations.empty(); };
    while (std::ranges::any_of(nodes_, waits)) {
        pass_time(20 * millisecond);
        check_links();
        if (softverbs_now() > cancelled) {
            missing();
        }
    }
    pass_time(100 * millisecond); // The last credits arrive.
    for (std::size_t i = 0; i < links_.size(); ++i) {
        if (!links_[i]->may_fail) {
            check_credits(*links_[i]);
            for (const Side& side : links_[i]->sides) {
                expect(side.refused == 0, "both ends agree on which messages were refused");
                expect(side.channel->in_flight() == 0, "a request that has ended is not in flight");
            }
        }
        for (std::size_t side = 0; side < 2; ++side) {
            if (links_[i]->sides[side].channel) {
                close(i, side);
            }
        }
    }
    pass_time(second);
    check_resources();
}

void World::missing() {
    for (const auto& node : nodes_) {
        for (const auto& operation : node->operations) {
            if (!node->dead) {
                log("has not ended: #" + std::to_string(operation->id));
            }
        }
    }
    for (const auto& link : links_) {
        for (const Side& side : link->sides) {
            for (const std::uint64_t id : side.sent) {
                if (!link->may_fail && messages_[id].receive == 0) {
                    log("has not arrived: message #" + std::to_string(id));
                }
            }
            if (!link->may_fail && !side.notices.empty()) {
                log("has not arrived: notification #" + std::to_string(side.notices.front().id[0]));
            }
        }
    }
    fail(
        "when the faults are over, all messages arrive, all requests end, and all failed queue "
        "pairs are replaced");
}

void World::check_credits(const Link& link) {
    for (std::size_t i = 0; i < 2; ++i) {
        const auto& sender = link.sides[i].state->control();
        const auto& receiver = link.sides[1 - i].state->control();
        expect(static_cast<std::uint16_t>(sender.window.sent()) == receiver.window.received(),
               "no message is missing in the window");
        expect(sender.window.unreceived() <= transport::detail::MessageWindow::size / 4,
               "the receipt of messages is confirmed");
        const auto check = [](const auto& ours, const auto& theirs, std::uint32_t limit) {
            const std::uint32_t unreported = theirs.consumed() - ours.peer_consumed();
            expect(unreported < limit / 4, "credits are returned");
            const std::uint32_t room = limit - unreported - ours.overhead;
            expect(ours.available(room) && !ours.available(room + 1) &&
                       theirs.has_room(limit - ours.overhead),
                   "no credit is missing");
        };
        check(sender.eager_credits, receiver.eager_credits, options_.unexpected_limit);
        check(sender.notification_credits, receiver.notification_credits,
              options_.notification_limit);
    }
}

std::ptrdiff_t World::descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

void World::check_resources() {
    std::size_t queue_pairs = 0;
    for (const auto& node : nodes_) {
        // The SetupQueuePair of the endpoint, which exists after the first channel.
        queue_pairs += node->state != nullptr ? 1 : 0;
        for (std::size_t i = 0; node->state != nullptr && i < devices_; ++i) {
            queue_pairs += node->state->shared.rails[i]->loopback ? 1 : 0;
        }
    }
    expect(softverbs_live(SOFTVERBS_QP) == queue_pairs, "no queue pair is left");
    abandoned_.clear(); // Some of these requests hold revoked memory.
    for (const auto& node : nodes_) {
        node->endpoint->cache().clear();
    }
    expect(descriptors() == descriptors_, "no descriptor is left");
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        Node& node = *nodes_[i];
        if (node.state == nullptr || node.dead) {
            continue;
        }
        transport::detail::SharedState& shared = node.state->shared;
        expect(shared.pool.unused() == options_.send_buffers, "no send buffer is missing");
        const auto left = [](const auto&) { fail("no request is left"); };
        shared.sends.for_each(left);
        shared.receives.for_each(left);
        shared.one_sided.for_each(left);
        expect(shared.transfers.taken() == 0, "no transfer is left");
        for (const auto& rail : shared.rails) {
            if (rail->failure != nullptr) {
                continue;
            }
            // Each receive that can still be posted is one that is missing.
            unsigned receives = 0;
            while (rail->srq.post_recv(std::span<const ibv_sge>(), 0)) {
                ++receives;
            }
            if (receives != 0) {
                fail("no receive buffer is missing, but node " + std::to_string(i) + " misses " +
                     std::to_string(receives));
            }
            const std::uint32_t kept =
                node.reserved[static_cast<std::size_t>(&rail - shared.rails.data())];
            expect(rail->cq_reserved == kept, "no entry of a completion queue is missing");
        }
    }
}

} // namespace rdmabuf::simulation
