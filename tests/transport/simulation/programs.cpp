// SPDX-License-Identifier: BSD-3-Clause
// What the programs do.
#include <softverbs/softverbs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "world.hpp"

namespace rdmabuf::simulation {
namespace {

constexpr Tag tags = 4;

const char* name(Kind kind) {
    constexpr std::array<const char*, 10> names = {
        "send",   "receive", "put",  "put with notification", "put list", "get", "get list",
        "atomic", "fence",   "flush"};
    return names[static_cast<std::size_t>(kind)];
}

} // namespace

void World::choose_weights() {
    // Some seeds do a few kinds of actions often, and others never.
    for (std::uint64_t& weight : weights_) {
        weight = random_.one_of({0U, 1U, 1U, 2U, 6U});
    }
    weights_[static_cast<std::size_t>(Action::fault)] *= random_.one_in(3) ? 0 : 1;
}

World::Action World::choose_action() {
    std::uint64_t sum = 0;
    for (const std::uint64_t weight : weights_) {
        sum += weight;
    }
    std::uint64_t choice = random_.below(sum + 1);
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        if (choice < weights_[i]) {
            return static_cast<Action>(i);
        }
        choice -= weights_[i];
    }
    return Action::send;
}

void World::act() {
    const std::size_t which = random_.below(nodes_.size());
    const Action action = choose_action();
    if (action == Action::fault) {
        if (random_.one_in(3)) {
            fault();
        }
        return;
    }
    if (action == Action::pass_time) {
        pass_time(random_.one_of({microsecond, millisecond, 20 * millisecond, second / 2}));
        return;
    }
    if (computes(*nodes_[which])) {
        return;
    }
    switch (action) {
        case Action::compute:
            compute(which);
            break;
        case Action::connect:
            close_or_connect(which);
            break;
        case Action::send:
            send(which);
            break;
        case Action::send_many:
            for (std::uint64_t count = random_.below(40); count > 0; --count) {
                send(which);
            }
            break;
        case Action::receive:
            receive(which);
            break;
        case Action::receive_arrived:
            for (const std::size_t at : links_of(which)) {
                receive_arrived(which, at);
            }
            break;
        case Action::cancel:
            cancel(which);
            break;
        case Action::put:
            write(which, Kind::put);
            break;
        case Action::put_notify:
            write(which, Kind::put_notify);
            break;
        case Action::put_list:
            write(which, Kind::put_list);
            break;
        case Action::get:
            read(which, random_.one_in(2) ? Kind::get : Kind::get_list);
            break;
        case Action::atomic:
            atomic(which);
            break;
        case Action::other:
            other(which);
            break;
        case Action::wait:
            wait(which);
            break;
        default:
            give_back_cells(which);
            break;
    }
}

void World::compute(std::size_t which) {
    if (!random_.one_in(3)) {
        return;
    }
    const std::uint64_t time =
        random_.one_of({millisecond, 100 * millisecond, 2 * second, 20 * second});
    log("node " + std::to_string(which) + " computes for " + std::to_string(time) + " ns");
    nodes_[which]->computes_until = softverbs_now() + time;
    if (random_.one_in(3)) {
        pass_time(random_.below(time));
    }
}

void World::wait(std::size_t which) {
    Node& node = *nodes_[which];
    bool sleeps = false;
    for (int i = 0; i < 64 && !sleeps; ++i) {
        sleeps = node.endpoint->arm();
        if (!sleeps) {
            progress(which); // Completions that were not polled keep an endpoint from being armed.
        }
    }
    expect(sleeps, "a program sleeps while nothing happens");
    if (random_.one_in(2)) {
        softverbs_advance(100 * millisecond); // Periodic checks are due.
    }
    wait_in(which, [&] { node.endpoint->wait(std::chrono::milliseconds(0)); });
    for (std::uint64_t count = random_.below(4); count > 0; --count) {
        send(which);
    }
}

void World::close_or_connect(std::size_t which) {
    for (const std::size_t link : links_of(which)) {
        const std::size_t side = side_of(link, which);
        if (links_[link]->sides[side].channel->state().value() != 0 || random_.one_in(8)) {
            close(link, side);
            break;
        }
    }
    const std::size_t other = random_.below(nodes_.size());
    const bool are_connected = std::ranges::any_of(links_of(which), [&](std::size_t link) {
        return links_[link]->sides[1 - side_of(link, which)].node == other;
    });
    if (!port_is_down_ && !first_port_is_down_ && other != which && !nodes_[other]->dead &&
        !computes(*nodes_[other]) && (!are_connected || random_.one_in(8))) {
        connect(which, other);
    }
}

std::unique_ptr<Operation> World::operation(std::size_t node, Kind kind) {
    const std::vector<std::size_t> open = links_of(node);
    if (open.empty()) {
        return nullptr;
    }
    auto made = std::make_unique<Operation>();
    made->kind = kind;
    made->link = open[random_.below(open.size())];
    made->side = side_of(made->link, node);
    made->by_context = random_.one_in(6);
    return made;
}

bool World::started(std::size_t which, std::unique_ptr<Operation>& operation,
                    std::error_code error) {
    Node& node = *nodes_[which];
    const Side& side = links_[operation->link]->sides[operation->side];
    if (error) {
        for (const std::size_t slot : operation->slot) {
            release_slot(node, slot);
        }
        const bool unregistered =
            !operation->slot.empty() && operation->slot[0] >= registered_slots;
        if (error.value() != EAGAIN && side.channel->state().value() == 0 &&
            !(unregistered && node.has_failed_device)) {
            fail(std::string(name(operation->kind)) + " starts, but: " + error.message());
        }
        operation.reset();
        return false;
    }
    log(std::to_string(which) + ": " + name(operation->kind) + " #" +
        std::to_string(operation->id) + " of " + std::to_string(operation->length) +
        " bytes on link " + std::to_string(operation->link) + ", tag " +
        std::to_string(operation->tag));
    node.operations.push_back(std::move(operation));
    return true;
}

void World::send(std::size_t which) {
    Node& node = *nodes_[which];
    std::unique_ptr<Operation> made = operation(which, Kind::send);
    // Half of the depth is for receives: otherwise, the sends of both ends could block each other.
    if (made && links_[made->link]->sides[made->side].channel->in_flight() >= options_.depth / 2) {
        return;
    }
    const bool registered = !random_.one_in(4);
    const auto slot = made ? take_slot(node, Node::Slot::read, registered) : std::nullopt;
    if (!slot) {
        return;
    }
    made->tag = random_.below(tags);
    if (random_.below(4) < receives_first_) {
        receive_first(made->link, 1 - made->side, made->tag);
    }
    made->id = ++last_id_;
    made->slot = {*slot};
    made->length = random_.one_of({std::uint64_t{0}, 8 + random_.below(100),
                                   8 + random_.below(1100), 8 + random_.below(eager_limit - 8),
                                   eager_limit + 1 + random_.below(slot_size - eager_limit)});
    const auto is_alike = [&](std::uint64_t id) {
        const Message& other = messages_[id];
        return other.receive == 0 && other.tag == made->tag && other.length == made->length;
    };
    // Truncated messages are identified by tag and length: choose a length that is not in use.
    while (made->length > 0 &&
           std::ranges::any_of(links_[made->link]->sides[1 - made->side].sent, is_alike)) {
        --made->length;
    }
    fill_pattern(node.bytes(*slot).first(made->length), made->id);
    node.remember(*slot);
    Operation& send = *made;
    Side& side = links_[send.link]->sides[send.side];
    void* const context = send.by_context ? &send : nullptr;
    const std::byte* const at = node.bytes(*slot).data();
    const std::size_t peer = links_[send.link]->sides[1 - send.side].node;
    const std::size_t longest_copy =
        std::min({transport::max_copied_message, std::size_t{node.options.eager_limit},
                  std::size_t{nodes_[peer]->options.eager_limit}});
    const std::error_code error =
        send.length <= longest_copy && random_.one_in(5) && !node.is_dmabuf(*slot)
            ? copy_message(node, side, send)
        : registered && send.id % 8 == 3
            ? side.channel->issend(node.memory_of(*slot), at, send.length, send.tag, send.request,
                                   context)
        : registered ? side.channel->isend(node.memory_of(*slot), at, send.length, send.tag,
                                           send.request, context)
                     : side.channel->isend(at, send.length, send.tag, send.request, context);
    const Message message = {.tag = send.tag, .length = send.length};
    const std::size_t link = send.link;
    const std::uint64_t id = send.id;
    const std::size_t to = 1 - send.side;
    if (started(which, made, error)) {
        messages_[id] = message;
        links_[link]->sides[to].sent.push_back(id);
    }
}

std::error_code World::copy_message(Node& node, Side& side, Operation& send) {
    send.by_context = false;
    const std::error_code error =
        side.channel->send_copy(node.bytes(send.slot[0]).first(send.length), send.tag);
    // send_copy() starts no request: store one that has ended.
    send.request = {.channel = side.number,
                    .generation = static_cast<std::uint32_t>(send.length),
                    .index = Request::completed_index};
    return error;
}

void World::receive(std::size_t which) {
    const bool any = random_.one_in(4);
    post_receive(which, any, random_.below(tags),
                 random_.one_of({transport::full_mask, transport::full_mask, Tag{2}, Tag{0}}),
                 random_.one_in(2) ? std::size_t{512} : slot_size, std::nullopt);
}

void World::receive_arrived(std::size_t which, std::size_t at) {
    Node& node = *nodes_[which];
    while (links_[at]->sides[side_of(at, which)].channel->probe(0, 0)) {
        const std::size_t before = node.operations.size();
        post_receive(which, false, 0, 0, slot_size, at);
        if (node.operations.size() == before) {
            return;
        }
    }
}

void World::receive_first(std::size_t at, std::size_t side_index, Tag tag) {
    const Side& side = links_[at]->sides[side_index];
    if (!side.channel || computes(*nodes_[side.node]) || nodes_[side.node]->waits) {
        return;
    }
    post_receive(
        side.node, random_.one_in(8), tag,
        random_.one_of({transport::full_mask, transport::full_mask, transport::full_mask, Tag{2}}),
        random_.one_of({std::size_t{512}, std::size_t{eager_limit}, slot_size}), at);
}

void World::post_receive(std::size_t which, bool any, Tag tag, Tag mask, std::size_t length,
                         std::optional<std::size_t> link) {
    Node& node = *nodes_[which];
    std::unique_ptr<Operation> made = operation(which, Kind::receive);
    const bool registered = finishing_ || !random_.one_in(4);
    const auto slot = made ? take_slot(node, Node::Slot::written, registered) : std::nullopt;
    if (!slot) {
        return;
    }
    if (link) {
        made->link = *link;
        made->side = side_of(*link, which);
    }
    made->id = ++last_id_;
    made->slot = {*slot};
    made->tag = tag;
    made->mask = mask;
    made->length = length;
    made->from_any = any;
    receives_[made->id] = {.tag = tag, .mask = mask};
    void* const context = made->by_context ? made.get() : nullptr;
    std::byte* const at = node.bytes(*slot).data();
    Channel& channel = *links_[made->link]->sides[made->side].channel;
    Request& request = made->request;
    std::error_code error;
    // Receives from any channel count for the channel whose message they get, even while mprobe()
    // makes progress.
    const auto from_any = std::ranges::count_if(
        node.operations, [](const auto& operation) { return operation->from_any; });
    const std::optional<MatchedMessage> taken =
        registered && !any && made->id % 4 == 1 &&
                channel.in_flight() + static_cast<std::size_t>(from_any) < node.options.depth
            ? channel.mprobe(tag, mask)
            : std::nullopt;
    if (taken) {
        error = channel.imrecv(*taken, node.memory_of(*slot), at, length, request, context);
        expect(!error || channel.state(), "a message that was taken can be received");
    } else if (registered) {
        const Memory& memory = node.memory_of(*slot);
        error = any ? node.endpoint->irecv(memory, at, length, tag, mask, request, context)
                    : channel.irecv_masked(memory, at, length, tag, mask, request, context);
    } else {
        error = any ? node.endpoint->irecv(at, length, tag, mask, request, context)
                    : channel.irecv_masked(at, length, tag, mask, request, context);
    }
    static_cast<void>(started(which, made, error));
}

void World::cancel(std::size_t which) {
    Node& node = *nodes_[which];
    if (node.operations.empty()) {
        return;
    }
    Operation& chosen = *node.operations[random_.below(node.operations.size())];
    if (chosen.kind == Kind::receive || chosen.kind == Kind::put || chosen.kind == Kind::put_list ||
        chosen.kind == Kind::get_list) {
        cancel(which, chosen);
    }
}

void World::cancel(std::size_t which, Operation& operation) {
    Link& link = *links_[operation.link];
    const std::error_code error =
        operation.from_any ? nodes_[which]->endpoint->cancel(operation.request)
                           : link.sides[operation.side].channel->cancel(operation.request);
    // A receive from any channel that has matched a message belongs to the channel of this message.
    expect(!error || error.value() == EALREADY || operation.from_any,
           "a request that has not ended can be cancelled, or it is too late for this");
    log(std::to_string(which) + ": cancel #" + std::to_string(operation.id) + ": " +
        std::to_string(error.value()));
    if (error) {
        return;
    }
    operation.cancelled = true;
    if (operation.kind == Kind::put || operation.kind == Kind::put_list) {
        Side& target = link.sides[1 - operation.side];
        std::erase_if(target.notices,
                      [&](const Notice& notice) { return notice.id[0] == operation.notice.id[0]; });
        for (std::size_t i = 0; i < operation.notice.count; ++i) {
            target.cell[operation.notice.cell[i]] = Side::Cell::cancelled;
        }
    }
}

void World::write(std::size_t which, Kind kind) {
    Node& node = *nodes_[which];
    std::unique_ptr<Operation> made = operation(which, kind);
    if (!made) {
        return;
    }
    Operation& write = *made;
    Link& link = *links_[write.link];
    Side& target = link.sides[1 - write.side];
    if (!target.channel) {
        return;
    }
    const std::size_t most = kind == Kind::put_list ? cells : 1;
    const bool registered = kind != Kind::put || !random_.one_in(4);
    Notice& notice = write.notice;
    for (std::size_t cell = 0; cell < cells && notice.count < most; ++cell) {
        if (target.cell[cell] != Side::Cell::free) {
            continue;
        }
        const auto slot = take_slot(node, Node::Slot::read, registered);
        if (!slot) {
            break;
        }
        const std::size_t length = 8 + random_.below(random_.one_in(2) ? 100 : slot_size - 8);
        write.slot.push_back(*slot);
        notice.cell[notice.count] = cell;
        notice.id[notice.count] = ++last_id_;
        notice.length[notice.count++] = length;
        fill_pattern(node.bytes(*slot).first(length), last_id_);
        node.remember(*slot);
        write.length += length;
    }
    if (notice.count == 0) {
        return;
    }
    write.id = notice.id[0];
    // Some notifications are longer than inline data.
    notice.size = random_.one_of<std::size_t>({8, 100, 400});
    notice.sent = kind != Kind::put && (kind == Kind::put_notify || !random_.one_in(3));
    std::array<std::byte, 512> bytes{};
    const std::span<std::byte> notification = std::span(bytes).first(notice.size);
    fill_pattern(notification, write.id);
    void* const context = write.by_context ? &write : nullptr;
    const std::size_t to = target.window[notice.cell[0]];
    const RemoteMemory& remote = nodes_[target.node]->remote_of(to);
    Channel& channel = *link.sides[write.side].channel;
    const std::uint64_t offset = to * slot_size;
    const Memory& memory = node.memory_of(write.slot[0]);
    const std::byte* const from = node.bytes(write.slot[0]).data();
    std::error_code error;
    if (kind == Kind::put_list) {
        add_entries(node, *nodes_[target.node], target, write, random_.one_of({1U, 1U, 8U, 64U}));
        error = channel.iput_list(
            write.entries, write.request,
            notice.sent ? std::optional<std::span<const std::byte>>(notification) : std::nullopt,
            context);
    } else if (kind == Kind::put_notify) {
        error = channel.iput_notify(memory, from, write.length, remote, offset, notification,
                                    write.request, context);
    } else {
        error =
            registered
                ? channel.iput(memory, from, write.length, remote, offset, write.request, context)
                : channel.iput(from, write.length, remote, offset, write.request, context);
    }
    const Notice copy = notice;
    if (started(which, made, error)) {
        for (std::size_t i = 0; i < copy.count; ++i) {
            target.cell[copy.cell[i]] = Side::Cell::writing;
            target.cell_id[copy.cell[i]] = copy.id[i];
            target.cell_length[copy.cell[i]] = copy.length[i];
        }
        if (copy.sent) {
            target.notices.push_back(copy);
        }
    }
}

void World::add_entries(Node& node, const Node& peer, const Side& target, Operation& operation,
                        std::size_t pieces) {
    const Notice& notice = operation.notice;
    for (std::size_t i = 0; i < notice.count; ++i) {
        const std::size_t slot = operation.slot[i];
        const std::size_t to = target.window[notice.cell[i]];
        const std::size_t piece = (notice.length[i] + pieces - 1) / pieces;
        for (std::size_t at = 0; at < notice.length[i]; at += piece) {
            operation.entries.push_back({.memory = &node.memory_of(slot),
                                         .address = node.bytes(slot).data() + at,
                                         .length = std::min(piece, notice.length[i] - at),
                                         .remote = &peer.remote_of(to),
                                         .offset = to * slot_size + at});
        }
    }
}

void World::read(std::size_t which, Kind kind) {
    Node& node = *nodes_[which];
    std::unique_ptr<Operation> made = operation(which, kind);
    if (!made) {
        return;
    }
    Operation& read = *made;
    const Side& target = links_[read.link]->sides[1 - read.side];
    Notice& notice = read.notice;
    const bool registered = kind != Kind::get || !random_.one_in(4);
    for (std::size_t cell = 0; cell < cells && notice.count < (kind == Kind::get ? 1 : cells);
         ++cell) {
        if (!target.channel || target.cell[cell] != Side::Cell::written) {
            continue;
        }
        const auto slot = take_slot(node, Node::Slot::written, registered);
        if (!slot) {
            break;
        }
        read.slot.push_back(*slot);
        notice.cell[notice.count] = cell;
        notice.id[notice.count] = target.cell_id[cell];
        notice.length[notice.count] = target.cell_length[cell];
        read.length += target.cell_length[cell];
        ++notice.count;
    }
    if (notice.count == 0) {
        return;
    }
    read.id = ++last_id_;
    void* const context = read.by_context ? &read : nullptr;
    Channel& channel = *links_[read.link]->sides[read.side].channel;
    add_entries(node, *nodes_[target.node], target, read,
                kind == Kind::get ? 1U : random_.one_of({1U, 1U, 8U, 64U}));
    const TransferEntry& first = read.entries[0];
    void* const to = const_cast<void*>(first.address);
    const std::error_code error =
        kind == Kind::get_list ? channel.iget_list(read.entries, read.request, context)
        : registered
            ? channel.iget(*first.memory, to, first.length, *first.remote, first.offset,
                           read.request, context)
            : channel.iget(to, first.length, *first.remote, first.offset, read.request, context);
    static_cast<void>(started(which, made, error));
}

void World::atomic(std::size_t which) {
    Node& node = *nodes_[which];
    std::unique_ptr<Operation> made = operation(which, Kind::atomic);
    if (!made) {
        return;
    }
    Side& target = links_[made->link]->sides[1 - made->side];
    const auto slot = target.channel ? take_slot(node, Node::Slot::written) : std::nullopt;
    if (!slot) {
        return;
    }
    const std::uint64_t addend = 1 + random_.below(100);
    made->id = ++last_id_;
    made->slot = {*slot};
    made->length = 8;
    made->expected = target.counter;
    auto* const result = reinterpret_cast<std::uint64_t*>(node.bytes(*slot).data());
    const RemoteMemory& remote = nodes_[target.node]->remote_of(target.counter_slot);
    const std::uint64_t offset = target.counter_slot * slot_size;
    void* const context = made->by_context ? made.get() : nullptr;
    Channel& channel = *links_[made->link]->sides[made->side].channel;
    const std::error_code error =
        random_.one_in(2)
            ? channel.ifetch_add(node.memory_of(*slot), result, remote, offset, addend,
                                 made->request, context)
            : channel.icompare_swap(node.memory_of(*slot), result, remote, offset, target.counter,
                                    target.counter + addend, made->request, context);
    if (started(which, made, error)) {
        target.counter += addend;
    }
}

void World::other(std::size_t which) {
    Node& node = *nodes_[which];
    std::unique_ptr<Operation> made =
        operation(which, random_.one_in(2) ? Kind::fence : Kind::flush);
    if (!made) {
        return;
    }
    made->id = ++last_id_;
    Channel& channel = *links_[made->link]->sides[made->side].channel;
    void* const context = made->by_context ? made.get() : nullptr;
    const std::size_t flushed = random_.below(registered_slots);
    const std::error_code error =
        made->kind == Kind::fence
            ? channel.ifence(made->request, context)
            : channel.iflush(node.memory_of(flushed), node.bytes(flushed).data(), 64, made->request,
                             context);
    static_cast<void>(started(which, made, error));
}

void World::give_back_cells(std::size_t which) {
    for (const std::size_t link : links_of(which)) {
        Side& side = links_[link]->sides[side_of(link, which)];
        const Side& peer = links_[link]->sides[1 - side_of(link, which)];
        for (std::size_t cell = 0; cell < cells; ++cell) {
            const bool in_use =
                std::ranges::any_of(nodes_[peer.node]->operations, [&](const auto& operation) {
                    const auto used =
                        std::span(operation->notice.cell).first(operation->notice.count);
                    return operation->link == link && operation->side != side_of(link, which) &&
                           std::ranges::find(used, cell) != used.end();
                });
            if (in_use || !random_.one_in(2)) {
                continue;
            }
            if (side.cell[cell] == Side::Cell::reused || side.cell[cell] == Side::Cell::written) {
                side.cell[cell] = Side::Cell::free;
            }
        }
    }
}

} // namespace rdmabuf::simulation
