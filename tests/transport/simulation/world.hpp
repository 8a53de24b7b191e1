// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/exporter.hpp>
#include <rdmabuf/transport.hpp>

#include "random.hpp"

namespace rdmabuf::simulation {

using transport::Channel;
using transport::Completion;
using transport::Endpoint;
using transport::EndpointOptions;
using transport::MatchedMessage;
using transport::Memory;
using transport::RemoteMemory;
using transport::Request;
using transport::Tag;
using transport::TransferEntry;

inline constexpr std::uint64_t microsecond = 1000;
inline constexpr std::uint64_t millisecond = 1'000'000;
inline constexpr std::uint64_t second = 1'000'000'000;

void log(const std::string& line);
/// Ends the run: the transport has broken a rule. @param rule  what the transport has to guarantee
[[noreturn]] void fail(const std::string& rule);
void expect(bool condition, const char* rule);

/// The size in bytes of a slot: the part of a program's memory that one request at a time uses.
inline constexpr std::size_t slot_size = 24576;
inline constexpr std::size_t slots = 40;
/// The first slots are registered by one Memory object. The others are registered when a request
/// uses them.
inline constexpr std::size_t registered_slots = 32;
/// The maximum eager limit of an endpoint, in bytes.
inline constexpr std::uint32_t eager_limit = 2048;
/// The number of slots of each end of a channel that the other end writes by RDMA.
inline constexpr std::size_t cells = 4;

struct Message {
    Tag tag = 0;
    std::size_t length = 0;
    /// The id of the receive that the message ended; 0 if the message has not arrived.
    std::uint64_t receive = 0;
};
/// The tag and the mask of a receive. Receives have ids in the order in which they were started.
struct Receive {
    Tag tag = 0;
    Tag mask = 0;
};

/// The cells of the peer that a request writes or reads, and the notification of a write.
struct Notice {
    std::array<std::size_t, cells> cell{};
    /// The ids of the patterns in the cells. The notification has the pattern of the first id.
    std::array<std::uint64_t, cells> id{};
    std::array<std::size_t, cells> length{};
    std::size_t count = 0;
    /// The size of the notification in bytes.
    std::size_t size = 0;
    /// False for a write without a notification.
    bool sent = false;
};

/// One end of a channel, with the expected effects of the requests of the other end.
struct Side {
    std::optional<Channel> channel;
    std::size_t node = 0;
    /// The slots of this end that the other end writes to.
    std::array<std::size_t, cells> window{};
    enum class Cell : std::uint8_t {
        /// The other end may write.
        free,
        /// The other end writes, or has written and this end has no notification of it.
        writing,
        /// The other end has written the pattern cell_id without a notification.
        written,
        /// The other end has cancelled the write, a part of which may still arrive.
        cancelled,
        /// This end has the notification, and uses the memory for something else.
        reused,
    };
    std::array<Cell, cells> cell{};
    std::array<std::uint64_t, cells> cell_id{};
    std::array<std::size_t, cells> cell_length{};
    /// The notifications that the other end has sent and this end has not received.
    std::deque<Notice> notices;
    /// The ids of the messages that the other end has sent to this end.
    std::vector<std::uint64_t> sent;
    /// The number of receives that have ended because a long message did not fit, minus the number
    /// of sends of such messages that have ended.
    int refused = 0;
    /// The value of the counter after all atomic operations that the other end has started.
    std::uint64_t counter = 0;
    std::size_t counter_slot = 0;
    transport::detail::ChannelState* state = nullptr;
    /// Channel::number() of the channel.
    std::uint32_t number = 0;
};

/// A channel between two programs.
struct Link {
    std::array<Side, 2> sides;
    /// True once a fault or a program has ended the channel, or may do so.
    bool may_fail = false;
    bool closed = false;
};

enum class Kind : std::uint8_t {
    send,
    receive,
    put,
    put_notify,
    put_list,
    get,
    get_list,
    atomic,
    fence,
    flush
};

/// Memory of one request, which is revoked while the request uses it.
struct RevokedMemory {
    RevokedMemory(const Endpoint& user, Buffer allocated)
        : endpoint(user), buffer(std::move(allocated)) {}
    RevokedMemory(const RevokedMemory&) = delete;
    RevokedMemory& operator=(const RevokedMemory&) = delete;
    ~RevokedMemory() {
        memory.reset();
        endpoint.cache().invalidate(buffer.address(), buffer.size());
    }

    const Endpoint& endpoint;
    Buffer buffer;
    std::optional<Memory> memory;
};

struct Operation {
    std::unique_ptr<RevokedMemory> revoked;
    Kind kind{};
    std::uint64_t id = 0;
    std::size_t link = 0;
    std::size_t side = 0;
    bool from_any = false;
    bool by_context = false;
    bool cancelled = false;
    bool ended = false;
    /// True if the channel was closed before the request was reported.
    bool abandoned = false;
    Request request{};
    std::vector<std::size_t> slot;
    std::size_t length = 0;
    Tag tag = 0;
    Tag mask = 0;
    Notice notice{};
    std::vector<TransferEntry> entries;
    std::uint64_t expected = 0;
};

/// A program with one endpoint.
struct Node {
    EndpointOptions options;
    std::vector<Context> devices;
    /// The memory of the program. With `both`, the slots with odd numbers are in the dma-buf.
    enum class Kind : std::uint8_t { host, dmabuf, both };
    Kind kind{};
    std::vector<std::byte> host;
    std::optional<Buffer> dmabuf;
    /// The regions of memory that the program has registered itself.
    std::vector<MemoryRegion> regions;
    std::optional<Endpoint> endpoint;
    /// nullptr before the first channel.
    transport::detail::EndpointState* state = nullptr;
    /// SharedRail::cq_reserved of each device before the first channel.
    std::array<std::uint32_t, transport::max_rails> reserved{};
    /// The expected bytes of the memory, except in slots that requests write.
    std::vector<std::byte> shadow;
    /// The registrations of host memory and of the dma-buf.
    std::array<Memory, 2> memory;
    std::array<RemoteMemory, 2> remote;
    enum class Slot : std::uint8_t { free, read, written, window };
    std::array<Slot, slots> slot{};
    std::vector<std::unique_ptr<Operation>> operations;
    /// Until this time, the program computes and calls no function of the transport.
    std::uint64_t computes_until = 0;
    std::uint64_t ran_at = 0;
    /// True while the program is inside a function of the transport that waits.
    bool waits = false;
    /// True if the first device has failed.
    bool dead = false;
    /// True if a device has failed. Until the endpoint detects this, no memory can be registered.
    bool has_failed_device = false;
    /// True if the messages of the program violate the protocol.
    bool lies = false;

    [[nodiscard]] bool is_dmabuf(std::size_t which) const {
        return kind == Kind::both ? which % 2 == 1 : kind == Kind::dmabuf;
    }
    [[nodiscard]] const Memory& memory_of(std::size_t which) const {
        return memory[is_dmabuf(which) ? 1 : 0];
    }
    /// The descriptor of the memory of a slot, in which the slot begins at byte which * slot_size.
    [[nodiscard]] const RemoteMemory& remote_of(std::size_t which) const {
        return remote[is_dmabuf(which) ? 1 : 0];
    }
    [[nodiscard]] std::span<std::byte> bytes(std::size_t which) {
        // NOLINTNEXTLINE(*-no-int-to-ptr): the memory is mapped
        auto* const first =
            is_dmabuf(which) ? reinterpret_cast<std::byte*>(dmabuf->address()) : host.data();
        return {first + which * slot_size, slot_size};
    }
    [[nodiscard]] std::span<std::byte> model(std::size_t which) {
        return std::span(shadow).subspan(which * slot_size, slot_size);
    }
    /// Makes the current bytes of a slot its expected bytes.
    void remember(std::size_t which) {
        std::memcpy(model(which).data(), bytes(which).data(), slot_size);
    }
};

// The functions name the objects that a number stands for as the declarations name the number.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
/// All programs, their channels, and what the transport has to guarantee.
class World {
  public:
    explicit World(std::uint64_t seed);
    World(const World&) = delete;
    World& operator=(const World&) = delete;
    ~World();

    /// Executes @p actions random actions, waits for the end of all requests, and checks that
    /// nothing is missing.
    void run(std::uint64_t actions);

  private:
    // The index of a program in nodes_ is called `which`, and that of a link in links_ `at`.

    // world.cpp: time, channels and memory
    /// Sets max_msg_sz and max_mr_size of all devices. A value of 0 leaves the limit unchanged.
    void limit_devices(std::uint32_t longest_message, std::size_t longest_region) const;
    /// Opens @p count programs, which call Endpoint::use_regions() if @p registers_itself is true.
    void open(std::size_t count, bool registers_itself);
    /// Registers memory with all devices, at an iova that is not its address.
    [[nodiscard]] static Result<Memory> register_at_iova(Node& node, std::span<std::byte> memory,
                                                         Access access, bool host,
                                                         transport::Visibility visibility);
    void connect(std::size_t a, std::size_t b);
    void close(std::size_t at, std::size_t side_index);
    void pass_time(std::uint64_t nanoseconds);
    /// Calls a function of the transport that may wait. The other programs run meanwhile.
    void wait_in(std::size_t waiting, const std::function<void()>& function);
    /// Lets a program call functions that make progress.
    void progress(std::size_t which);
    [[nodiscard]] bool computes(const Node& node) const;
    /// @param registered  false for memory without a Memory object
    [[nodiscard]] std::optional<std::size_t> take_slot(Node& node, Node::Slot use,
                                                       bool registered = true) const;
    void release_slot(Node& node, std::size_t slot);
    /// Returns the links of a program whose channel it has not closed.
    [[nodiscard]] std::vector<std::size_t> links_of(std::size_t node) const;
    [[nodiscard]] std::size_t side_of(std::size_t link, std::size_t node) const {
        return links_[link]->sides[0].node == node ? 0 : 1;
    }

    // programs.cpp: what programs do
    enum class Action : std::uint8_t {
        pass_time,
        compute,
        fault,
        connect,
        send,
        send_many,
        receive,
        receive_arrived,
        cancel,
        put,
        put_notify,
        put_list,
        get,
        atomic,
        other,
        wait,
        give_back_cells,
        count
    };
    void choose_weights();
    [[nodiscard]] Action choose_action();
    void act();
    void compute(std::size_t which);
    void close_or_connect(std::size_t which);
    /// Arms the endpoint, as a program does before it sleeps, and calls Endpoint::wait().
    void wait(std::size_t which);
    /// Returns a new request on any channel of a program; nullptr if it has none.
    [[nodiscard]] std::unique_ptr<Operation> operation(std::size_t node, Kind kind);
    /// Stores a started request; releases the slots after an error. @return true if it was started
    bool started(std::size_t which, std::unique_ptr<Operation>& operation, std::error_code error);
    void send(std::size_t which);
    static std::error_code copy_message(Node& node, Side& side, Operation& send);
    void receive(std::size_t which);
    /// Posts a receive for each unexpected message of a link.
    void receive_arrived(std::size_t which, std::size_t at);
    /// Posts a receive at one end of a link, for a message that the other end has not sent yet.
    void receive_first(std::size_t at, std::size_t side_index, Tag tag);
    void post_receive(std::size_t which, bool any, Tag tag, Tag mask, std::size_t length,
                      std::optional<std::size_t> link);
    void cancel(std::size_t which);
    void cancel(std::size_t which, Operation& operation);
    void write(std::size_t which, Kind kind);
    /// @param pieces  the number of entries for each cell
    static void add_entries(Node& node, const Node& peer, const Side& target, Operation& operation,
                            std::size_t pieces);
    void read(std::size_t which, Kind kind);
    void atomic(std::size_t which);
    void other(std::size_t which);
    void give_back_cells(std::size_t which);

    // faults.cpp
    /// Lets faults change ibv_post_send(3). Must be called before the node's first request.
    static void watch_posts(const Node& node);
    void fault();
    /// Moves a queue pair to the error state.
    void fail_queue_pair(std::size_t at, std::size_t side);
    /// Takes the port of the first device down for a while, during which the programs go on.
    void take_down_first_port();
    void fail_device(std::size_t which);
    /// Starts a request, and revokes its memory.
    void revoke(std::size_t which);
    /// From now on, some messages of the program violate the protocol.
    void lie(std::size_t which);
    [[nodiscard]] bool lies(const Link& link) const {
        return nodes_[link.sides[0].node]->lies || nodes_[link.sides[1].node]->lies;
    }

    // checks.cpp: what the transport has to guarantee
    void ended(std::size_t which, Operation& operation, const Completion& completion);
    void received(std::size_t which, Operation& operation, const Completion& completion);
    void notified(std::size_t which, std::size_t at);
    void check_memory(std::size_t which);
    void check_links();
    void check_credits(const Link& link);
    void finish();
    [[noreturn]] void missing();
    void check_resources();
    [[nodiscard]] static std::ptrdiff_t descriptors();

    Random random_;
    std::shared_ptr<Allocator> memfds_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<std::unique_ptr<Link>> links_;
    std::map<std::uint64_t, Message> messages_;
    std::map<std::uint64_t, Receive> receives_;
    std::vector<std::unique_ptr<Operation>> abandoned_;
    std::uint64_t last_id_ = 0;
    std::ptrdiff_t descriptors_ = 0;
    EndpointOptions options_;
    unsigned devices_ = 1;
    /// Of four sends, the number for which the other end posts a receive first.
    std::uint64_t receives_first_ = 0;
    std::array<std::uint64_t, static_cast<std::size_t>(Action::count)> weights_{};
    bool finishing_ = false;
    /// True while the port of the second device is down.
    bool port_is_down_ = false;
    bool first_port_is_down_ = false;
};
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

} // namespace rdmabuf::simulation
