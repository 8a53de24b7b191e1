// SPDX-License-Identifier: BSD-3-Clause
#include "world.hpp"

#include <softverbs/softverbs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/transport/detail/clock.hpp>

namespace rdmabuf::simulation {
namespace {

using std::chrono::milliseconds;

/// Called each time that a waiting function of the transport reads the clock; empty if none waits.
std::function<void()> while_waiting; // NOLINT(cert-err58-cpp)

std::int64_t simulated_time() {
    if (while_waiting) {
        const auto pass = std::exchange(while_waiting, nullptr);
        softverbs_advance(millisecond / 2);
        pass();
        while_waiting = pass;
    }
    return static_cast<std::int64_t>(softverbs_now());
}

/// The longest time for which a program that does not compute makes no progress.
constexpr std::uint64_t longest_pause = 50 * millisecond;

} // namespace

// Each step draws random numbers, so the order of the steps decides what a seed does.
World::World(std::uint64_t seed) : random_(seed), memfds_(make_memfd_exporter()) {
    softverbs_hide_real_devices(1);
    expect(softverbs_take_clock() == 0, "the clock can be stopped");
    transport::detail::test_clock = simulated_time;
    // In most seeds, the counters wrap around.
    transport::detail::test_first_count =
        0U - static_cast<std::uint32_t>(random_.below(random_.one_of({1U, 16U, 256U, 65536U})));
    // NOLINTNEXTLINE(cppcoreguidelines-prefer-member-initializer)
    devices_ = static_cast<unsigned>(1 + random_.below(2));
    expect(softverbs_reset("default", devices_) == 0, "the devices can be created");
    options_ = {.depth = random_.one_of({16U, 64U, 256U}),
                .send_depth = random_.one_of({16U, 32U, 128U}),
                .queue_pairs_per_device = random_.one_of({1U, 1U, 2U}),
                .receive_buffers = random_.one_of({16U, 32U, 256U}),
                .send_buffers = random_.one_of({4U, 16U, 256U}),
                .unexpected_limit = random_.one_of({4096U, 65536U, 1U << 20U}),
                .notification_limit = random_.one_of({4096U, 65536U}),
                .inline_data = random_.one_of({0U, 128U}),
                .min_fragment = 4096,
                .probation = milliseconds(random_.one_of({0, 10, 100})),
                .linger = milliseconds(100)};
    // NOLINTNEXTLINE(cppcoreguidelines-prefer-member-initializer)
    // The buffers of an endpoint are one region, so max_mr_size can be small only with few buffers.
    const bool has_small_buffers = options_.receive_buffers <= 32;
    const std::uint32_t longest_message = random_.one_of({0U, 0U, 4096U, 12288U});
    const std::size_t longest_region = has_small_buffers && random_.one_in(2) ? 20 * slot_size : 0;
    limit_devices(longest_message, longest_region);
    receives_first_ = random_.one_of({0U, 2U, 4U});
    choose_weights();
    constexpr const char* disorders[] = {"", "acks", "qps", "writes", "all"};
    const std::string disorder = disorders[random_.below(std::size(disorders))];
    if (!disorder.empty()) {
        const std::string text = disorder + ":" + std::to_string(random_.below(1000));
        expect(softverbs_set_disorder(text.c_str()) == 0, "the packets can be reordered");
    }
    open(random_.one_of({2U, 2U, 3U, 4U, 8U}), seed % 3 == 0 && longest_region == 0);
    log("devices " + std::to_string(devices_) + ", nodes " + std::to_string(nodes_.size()) +
        ", queue pairs " + std::to_string(options_.queue_pairs_per_device) + ", send_depth " +
        std::to_string(options_.send_depth) + ", receive_buffers " +
        std::to_string(options_.receive_buffers) + ", send_buffers " +
        std::to_string(options_.send_buffers) + ", disorder " + disorder + ", receives first " +
        std::to_string(receives_first_));
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
        connect(i - 1, i);
    }
    if (nodes_.size() > 2) {
        connect(nodes_.size() - 1, 0);
    }
    descriptors_ = descriptors();
}

void World::limit_devices(std::uint32_t longest_message, std::size_t longest_region) const {
    for (unsigned device = 0; device < devices_; ++device) {
        ibv_port_attr port = Context(DeviceList()[device]).port(1);
        port.max_msg_sz = longest_message != 0 ? longest_message : port.max_msg_sz;
        expect(softverbs_set_port_attr(device, 1, &port) == 0, "a port can have limits");
        ibv_device_attr_ex attributes{};
        expect(softverbs_get_device_attr(device, &attributes) == 0, "a device has attributes");
        ibv_device_attr& base = attributes.orig_attr;
        base.max_mr_size = longest_region != 0 ? longest_region : base.max_mr_size;
        expect(softverbs_set_device_attr(device, &attributes) == 0, "a device can have limits");
    }
    log("longest message " + std::to_string(longest_message) + ", longest region " +
        std::to_string(longest_region));
}

World::~World() {
    while_waiting = [] {};
    links_.clear();
    nodes_.clear();
    while_waiting = nullptr;
    transport::detail::test_clock = nullptr;
    softverbs_release_clock();
}

Result<Memory> World::register_at_iova(Node& node, std::span<std::byte> memory, Access access,
                                       bool host, transport::Visibility visibility) {
    constexpr std::uint64_t shift = std::uint64_t{1} << 30U;
    const auto iova = reinterpret_cast<std::uintptr_t>(memory.data()) + shift;
    std::vector<LocalChunk> chunks;
    for (std::size_t i = 0; i < node.devices.size(); ++i) {
        chunks.push_back(as_chunk(node.regions.emplace_back(
            node.endpoint->protection_domain(i), memory.data(), memory.size(),
            MemoryRegionOptions{.access = access, .iova = iova})));
    }
    std::vector<std::span<const LocalChunk>> of_devices;
    of_devices.reserve(chunks.size());
    for (const LocalChunk& chunk : chunks) {
        of_devices.emplace_back(&chunk, 1);
    }
    return node.endpoint->use_regions(memory.data(), memory.size(), access, host, of_devices,
                                      visibility);
}

void World::open(std::size_t count, bool registers_itself) {
    for (std::size_t i = 0; i < count; ++i) {
        auto node = std::make_unique<Node>();
        for (const Device& device : DeviceList()) {
            node->devices.emplace_back(device);
        }
        watch_posts(*node);
        node->options = options_;
        node->options.eager_limit = random_.one_of({0U, 256U, eager_limit, eager_limit});
        node->options.read_long_messages = random_.one_in(2);
        auto endpoint = Endpoint::open(node->devices, Resolver({memfds_}), node->options);
        expect(endpoint.ok(), "an endpoint can be opened");
        node->endpoint.emplace(*std::move(endpoint));
        node->shadow.resize(slots * slot_size);
        using enum Node::Kind;
        node->kind = random_.one_of({host, host, dmabuf, both});
        node->host.resize(node->shadow.size());
        node->dmabuf.emplace(memfds_->allocate(node->shadow.size()));
        const auto visibility = random_.one_in(2) ? transport::Visibility::running_kernel
                                                  : transport::Visibility::next_kernel;
        for (const std::size_t which : {0U, 1U}) {
            constexpr Access access = Endpoint::default_access | Access::remote_atomic;
            const bool is_dmabuf = node->is_dmabuf(which);
            const std::span bytes(node->bytes(which).data() - which * slot_size,
                                  registered_slots * slot_size);
            auto memory = registers_itself
                              ? register_at_iova(*node, bytes, access, !is_dmabuf, visibility)
                              : node->endpoint->register_memory(bytes.data(), bytes.size(), access,
                                                                visibility);
            expect(memory.ok(), "memory can be registered");
            const std::size_t kind = is_dmabuf ? 1 : 0;
            node->memory[kind] = *std::move(memory);
            node->remote[kind] = *node->memory[kind].remote();
        }
        log("node " + std::to_string(i) + ": eager limit " +
            std::to_string(node->options.eager_limit) + ", memory " +
            std::to_string(static_cast<int>(node->kind)));
        nodes_.push_back(std::move(node));
    }
}

void World::connect(std::size_t a, std::size_t b) {
    softverbs_clear_faults();
    const std::array<std::size_t, 2> ends = {a, b};
    for (const std::size_t end : ends) {
        nodes_[end]->computes_until = 0;
        if (std::ranges::count(nodes_[end]->slot, Node::Slot::free) <
            std::ssize(nodes_[end]->slot) / 2) {
            return;
        }
    }
    pass_time(100 * millisecond); // An endpoint finds out in this time that a device has failed.
    for (const std::size_t end : ends) {
        std::array<std::byte, 64> bytes{};
        expect(nodes_[end]->endpoint->register_memory(bytes.data(), bytes.size()).ok(),
               "memory can be registered while the first device works");
    }
    auto link = std::make_unique<Link>();
    std::array<std::optional<transport::PreparedChannel>, 2> prepared;
    for (std::size_t i = 0; i < 2; ++i) {
        auto made = nodes_[ends[i]]->endpoint->prepare_channel();
        if (!made.ok()) {
            fail("a channel can be prepared: " + std::string(made.error_info().message()));
        }
        prepared[i].emplace(*std::move(made));
    }
    const std::array<transport::ChannelAddress, 2> addresses = {prepared[0]->address(),
                                                                prepared[1]->address()};
    for (std::size_t i = 0; i < 2; ++i) {
        Side& side = link->sides[i];
        Node& node = *nodes_[ends[i]];
        side.node = ends[i];
        auto channel = (*std::move(prepared[i])).connect(addresses[1 - i]);
        if (!channel.ok()) {
            fail("a channel can be connected: " + std::string(channel.error_info().message()));
        }
        side.channel.emplace(*std::move(channel));
        side.number = side.channel->number();
        if (node.state == nullptr) {
            node.state = side.channel->endpoint();
            const auto& rails = node.state->shared.rails;
            for (std::size_t rail = 0; rail < rails.size(); ++rail) {
                // Subtract the entries that the new channel has reserved.
                node.reserved[rail] = rails[rail]->cq_reserved -
                                      options_.queue_pairs_per_device * rails[rail]->send_depth;
            }
        }
        const auto first = QueuePairAddress::decode(addresses[i].hello().addresses[0]);
        side.state = node.state->shared.rails[0]->queue_pairs.find(first->number).channel;
        for (std::size_t& cell : side.window) {
            cell = *take_slot(node, Node::Slot::window);
        }
        side.counter_slot = *take_slot(node, Node::Slot::window);
        std::ranges::fill(node.bytes(side.counter_slot), std::byte{});
    }
    link->may_fail = lies(*link);
    log("connect " + std::to_string(a) + " - " + std::to_string(b) + " as link " +
        std::to_string(links_.size()));
    links_.push_back(std::move(link));
    pass_time(300 * millisecond);
}

void World::close(std::size_t at, std::size_t side_index) {
    Link& link = *links_[at];
    Side& side = link.sides[side_index];
    Node& node = *nodes_[side.node];
    log("close link " + std::to_string(at) + " at " + std::to_string(side.node));
    link.may_fail = true;
    std::error_code error;
    if (random_.one_in(2)) {
        wait_in(side.node, [&] { error = side.channel->close(); });
    } else {
        // Its requests make progress during try_close(), and the program uses its other channels.
        const bool linger = random_.one_in(2);
        const std::uint64_t end = softverbs_now() + 5 * second; // The device may be dead.
        while ((error = side.channel->try_close(linger)).value() == EAGAIN) {
            pass_time(millisecond);
            expect(softverbs_now() < end, "a channel is closed soon after EndpointOptions::linger");
        }
    }
    log("  closed with " + std::to_string(error.value()));
    side.channel.reset();
    for (auto i = node.operations.begin(); i != node.operations.end();) {
        Operation& operation = **i;
        if (operation.from_any || operation.link != at) {
            ++i;
            continue;
        }
        for (const std::size_t slot : operation.slot) {
            release_slot(node, slot);
        }
        if (operation.by_context) {
            // Endpoint::poll_completions() may still report the request.
            operation.abandoned = true;
            abandoned_.push_back(std::move(*i));
        }
        i = node.operations.erase(i);
    }
    for (const std::size_t slot : side.window) {
        release_slot(node, slot);
    }
    release_slot(node, side.counter_slot);
    link.closed = !link.sides[0].channel && !link.sides[1].channel;
}

void World::wait_in(std::size_t waiting, const std::function<void()>& function) {
    nodes_[waiting]->waits = true;
    while_waiting = [this] {
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            if (nodes_[i]->waits || computes(*nodes_[i]) || finishing_) {
                continue;
            }
            progress(i);
            if (random_.one_in(4)) {
                random_.one_in(2) ? send(i) : cancel(i);
            }
        }
    };
    function();
    while_waiting = nullptr;
    nodes_[waiting]->waits = false;
}

bool World::computes(const Node& node) const {
    return node.dead || softverbs_now() < node.computes_until;
}

void World::pass_time(std::uint64_t nanoseconds) {
    while (nanoseconds > 0) {
        const std::uint64_t part = std::min(nanoseconds, longest_pause);
        softverbs_advance(part);
        nanoseconds -= part;
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            progress(i);
        }
    }
}

void World::progress(std::size_t which) {
    Node& node = *nodes_[which];
    if (computes(node)) {
        return;
    }
    // An endpoint looks at the clock once in 256 calls. A program that waits calls more often.
    const bool long_run = softverbs_now() - node.ran_at >= longest_pause;
    const std::uint64_t calls = long_run ? 256 : 1 + random_.below(3);
    if (long_run) {
        node.ran_at = softverbs_now();
    }
    for (std::uint64_t i = 0; i < calls; ++i) {
        node.endpoint->progress();
    }
    std::array<Completion, 8> completions;
    for (std::size_t count = completions.size(); count == completions.size();) {
        count = node.endpoint->poll_completions(completions);
        for (const Completion& completion : std::span(completions).first(count)) {
            auto* const operation = static_cast<Operation*>(completion.context);
            if (!operation->abandoned) {
                ended(which, *operation, completion);
                operation->ended = true;
            }
        }
    }
    for (std::size_t i = 0; i < node.operations.size(); ++i) {
        Operation& operation = *node.operations[i];
        if (operation.by_context) {
            continue;
        }
        const Completion completion =
            operation.from_any
                ? node.endpoint->test(operation.request)
                : links_[operation.link]->sides[operation.side].channel->test(operation.request);
        if (completion.done) {
            ended(which, operation, completion);
            operation.ended = true;
        }
    }
    std::erase_if(node.operations, [](const auto& operation) { return operation->ended; });
    for (const std::size_t link : links_of(which)) {
        notified(which, link);
    }
    check_memory(which);
}

std::optional<std::size_t> World::take_slot(Node& node, Node::Slot use, bool registered) const {
    const std::span<Node::Slot> all(node.slot);
    const std::span<Node::Slot> range =
        registered ? all.first(registered_slots) : all.subspan(registered_slots);
    // The reserve is for finish(), which receives all messages that have not been received.
    constexpr std::ptrdiff_t reserve = 4;
    const auto free = std::ranges::find(range, Node::Slot::free);
    if (free == range.end() ||
        (registered && !finishing_ && std::ranges::count(range, Node::Slot::free) <= reserve)) {
        return std::nullopt;
    }
    *free = use;
    return static_cast<std::size_t>(&*free - node.slot.data());
}

void World::release_slot(Node& node, std::size_t slot) {
    // The new bytes differ from those of the request, so that a check detects an access after the
    // end of the request.
    fill_pattern(node.bytes(slot), ++last_id_);
    node.remember(slot);
    node.slot[slot] = Node::Slot::free;
}

std::vector<std::size_t> World::links_of(std::size_t node) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < links_.size(); ++i) {
        for (const Side& side : links_[i]->sides) {
            if (side.node == node && side.channel) {
                found.push_back(i);
            }
        }
    }
    return found;
}

void World::run(std::uint64_t actions) {
    for (std::uint64_t i = 0; i < actions; ++i) {
        act();
        if (random_.one_in(2)) {
            softverbs_advance(random_.below(20 * microsecond));
        }
        for (std::size_t node = 0; node < nodes_.size(); ++node) {
            if (random_.one_in(2)) {
                progress(node);
            }
        }
        check_links();
    }
    finish();
}

} // namespace rdmabuf::simulation
