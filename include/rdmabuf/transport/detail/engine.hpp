// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/result.hpp>
#include <rdmabuf/transfer_splitter.hpp>
#include <rdmabuf/transport/detail/arena.hpp>
#include <rdmabuf/transport/detail/engine_limits.hpp>
#include <rdmabuf/transport/detail/flow_control.hpp>
#include <rdmabuf/transport/detail/inbox.hpp>
#include <rdmabuf/transport/detail/offers.hpp>
#include <rdmabuf/transport/detail/operation.hpp>
#include <rdmabuf/transport/detail/protocol.hpp>
#include <rdmabuf/transport/detail/rail.hpp>
#include <rdmabuf/transport/detail/refill.hpp>
#include <rdmabuf/transport/options.hpp>
#include <rdmabuf/transport/request.hpp>
#include <rdmabuf/unique_fd.hpp>
#include <rdmabuf/work_list.hpp>

namespace rdmabuf::transport::detail {

[[nodiscard]] inline std::int64_t now_ns() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// What a request is about.
struct Piece {
    const MemoryState* memory = nullptr;
    std::uintptr_t address = 0;
    std::uint64_t length = 0;
};

/// What a channel does once both ends know each other: see protocol.hpp. One thread at a time;
/// everything happens in calls of the program. Neither allocates nor throws, nor asks the system
/// for anything but the time, and while it waits whether the peer's socket is open.
class Engine {
  public:
    /// @param endpoint  whose memory requests may use
    /// @param rails     with connected queue pairs, and all receives posted
    Engine(const void* endpoint, const EndpointOptions& options, std::uint32_t number, Arena arena,
           std::vector<Rail> rails, UniqueFd socket, const Hello& peer, std::uint64_t max_message)
        : endpoint_(endpoint),
          options_(options),
          number_(number),
          arena_(std::move(arena)),
          inbox_(arena_),
          rails_(std::move(rails)),
          socket_(std::move(socket)),
          messages_(options.eager_slots, peer.eager_slots),
          control_(control_slots, control_slots),
          refill_(std::min(options.eager_slots, control_slots)),
          operations_(options.depth),
          eager_limit_(std::min(options.eager_limit, peer.eager_limit)),
          max_message_(static_cast<std::uint32_t>(std::min<std::uint64_t>(
              {max_message, peer.max_message_size, std::uint64_t{1} << 31}))),
          probe_{.address = peer.probe_address, .rkey = peer.probe_rkey} {
        looked_ns_ = probed_ns_ = now_ns();
    }

    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    ~Engine() = default;

    [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
    [[nodiscard]] std::size_t rails() const noexcept { return rails_.size(); }
    /// Why there will be no more; 0 while all is well.
    [[nodiscard]] int broken() const noexcept { return broken_; }
    [[nodiscard]] std::uint32_t in_flight() const noexcept { return operations_.in_use(); }

    // Beginning. Each returns 0 and fills in the request, or an errno value and does nothing.

    int send(const Piece& piece, Tag tag, Request& request) noexcept;

    int receive(const Piece& piece, Tag tag, Request& request) noexcept;

    int put(const Piece& piece, const RemoteMemory& remote, std::uint64_t offset,
            const std::uint64_t* value, Request& request) noexcept;

    int get(const Piece& piece, const RemoteMemory& remote, std::uint64_t offset,
            Request& request) noexcept;

    int flush(const Piece& piece, Request& request) noexcept;

    /// The oldest value that came with iput_notify(). @return whether there was one
    bool notification(std::uint64_t& value) noexcept;

    // Going on.

    /// @return 0, or an errno value for a request that is none of this channel's
    int test(const Request& request, Outcome& outcome) noexcept;

    void progress() noexcept;

    /// Waits until what was posted has been taken, for as long as closing may take.
    void drain() noexcept;

    /// Ends everything that is under way. Only the first reason counts.
    /// @param culprit  the operation that ends with an error of its own
    void fail(int error, std::uint32_t culprit = OperationTable::none,
              int culprit_error = 0) noexcept;

  private:
    static constexpr std::uint32_t calls_between_looks = 256;
    /// Requests that messages leave room for: credits, and the question whether the peer is there.
    static constexpr std::uint32_t reserved = 4;

    template <class Duration>
    [[nodiscard]] static std::int64_t ns(Duration duration) noexcept {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
    }

    // Checks

    [[nodiscard]] int check_range(const Piece& piece) const noexcept;
    [[nodiscard]] int check(const Piece& piece) const noexcept {
        return broken_ != 0 ? broken_ : check_range(piece);
    }
    [[nodiscard]] int check_remote(const Piece& piece, const RemoteMemory& remote,
                                   std::uint64_t offset, Access access) const noexcept;

    // Operations

    template <class Start>
    int begin(Purpose purpose, const Piece& piece, Request& request, const Start& start) noexcept {
        const std::uint32_t i = operations_.take();
        if (i == OperationTable::none) {
            return EAGAIN;
        }
        Operation& operation = operations_[i];
        operation.purpose = purpose;
        operation.notifies = operation.told = operation.offered = false;
        operation.length_known = true;
        operation.error = 0;
        operation.pending = 0;
        operation.memory = piece.memory;
        operation.address = piece.address;
        operation.length = piece.length;
        operation.bytes = operation.moved = operation.window = 0;
        operation.rail = 0;
        operation.slot = Inbox::none;
        operation.offer = Offers::none;
        operation.deadline = options_.timeout.count() > 0 ? now_ns() + ns(options_.timeout) : 0;
        request = {.channel = number_, .generation = operation.generation, .index = i};
        start(operation, i);
        return 0;
    }

    /// Begins to move all of it.
    void move(Operation& operation, std::uint32_t i, const RemoteMemory& remote,
              std::uint64_t offset) noexcept;

    /// What these devices need of a table.
    void copy_used(const RemoteTable& from, RemoteTable& to) const noexcept;

    void finish(std::uint32_t i, int error = 0) noexcept;

    /// What comes after the devices have moved what there was to move.
    void settle(std::uint32_t i) noexcept;

    void end_operations(int error, std::uint32_t culprit, int culprit_error) noexcept;

    // Devices

    void stop_devices() noexcept;

    static void note_completed(Rail& rail, const WorkId& id) noexcept {
        if (id.work == Work::remote) {
            rail.to_peer.completed(id.sequence);
        } else if (id.work == Work::local) {
            rail.to_self.completed(id.sequence);
        }
    }

    /// @return whether anything was completed
    bool poll() noexcept;

    void complete(Rail& rail, const WorkCompletion& completion) noexcept;

    /// Turns a failed completion into errors: one for the request it is of, and one for the others,
    /// which are lost with the queue pair.
    void explain(const WorkId& id, ibv_wc_status status) noexcept;

    /// Gives a request to the peer's queue pair. @return whether it was taken
    template <class Post>
    bool post(SendQueue& queue, Work work, std::uint32_t operation, const Post& make,
              bool always_signal = false) noexcept {
        const bool signaled =
            always_signal || operation != OperationTable::none || queue.must_signal();
        const WorkOptions options = {
            .wr_id = WorkId{.work = work, .number = operation, .sequence = queue.next()}.encode(),
            .flags = signaled ? SendFlags::signaled : SendFlags::none};
        if (const Status status = make(options); !status) {
            if (status.error() != ENOMEM) {
                fail(EIO, operation, status.error());
            }
            return false;
        }
        queue.posted(signaled);
        if (operation != OperationTable::none) {
            ++operations_[operation].pending;
        }
        return true;
    }

    /// Asks the peer's device for a sign of life, by writing nothing to it.
    void probe() noexcept;

    /// Reads a byte through each device: what it had written before is visible then.
    void read_back(Operation& operation, std::uint32_t i) noexcept;

    // Moving data

    void move_data() noexcept;

    /// On one device the peer may be told at once: it is told behind the data.
    void moved_all(Operation& operation, std::uint32_t i) noexcept;

    [[nodiscard]] bool move_piece(Operation& operation, std::uint32_t i) noexcept;

    /// How much of an operation goes to one device at once.
    [[nodiscard]] std::uint64_t stripe(const Operation& operation) const noexcept;

    // Messages that leave

    /// @param body  is copied; behind it comes @p data, if there is any
    /// @param operation  is told when it has left; none
    [[nodiscard]] bool send_message(Header header, std::span<const std::byte> body,
                                    const ibv_sge* data, std::uint32_t operation,
                                    std::uint32_t reserve) noexcept;

    /// Sends, and notifications, in the order in which they came.
    void send_queued() noexcept;

    [[nodiscard]] bool send_operation(Operation& operation, std::uint32_t i) noexcept;

    /// Begins to write a message to where its receive was offered. @return whether it was
    /// @param number  of the offer
    [[nodiscard]] bool take_offer(Operation& operation, std::uint32_t i,
                                  std::uint32_t number) noexcept;
    /// The peer knows that all was written.
    void told(Operation& operation) noexcept;

    /// An entry for all of a short message. @return false when it is in more than one chunk
    [[nodiscard]] static bool gather(const Operation& operation, ibv_sge& data) noexcept;

    /// Grants, refusals, and that all is written.
    void send_control() noexcept;

    [[nodiscard]] bool send_control_of(Operation& operation, std::uint32_t i) noexcept;

    [[nodiscard]] std::span<const std::byte> grant(
        const Operation& operation, std::uint64_t length, Header& header,
        std::array<GrantedChunk, max_chunks>& chunks) const noexcept;

    void send_credits() noexcept;

    /// Remembers a receive for the next send_offer(), if it can be offered.
    void consider_offer(std::uint32_t i) noexcept;
    /// Tells the peer of a receive whose message has not come yet. Something that can be left out.
    void send_offer() noexcept;

    // Messages that arrive

    /// At most Refill::capacity.
    void post_slots(std::span<const std::uint32_t> slots) noexcept;
    /// Posts what was freed, and lets the peer know with the next message.
    void refill() noexcept;
    void free_message_slot(std::uint32_t slot) noexcept;
    void free_control_slot(std::uint32_t slot) noexcept;

    void arrived(std::uint32_t slot, const WorkCompletion& completion) noexcept;

    void message(std::uint32_t slot, const Header& header) noexcept;

    void take_message(std::uint32_t i, std::uint32_t slot, const Header& header) noexcept;

    /// Has the device copy a message to memory that the CPU cannot write.
    void land(Operation& operation, std::uint32_t i) noexcept;

    /// Whether a send can process a grant now.
    [[nodiscard]] static bool expects_grant(const Operation& operation) noexcept;
    void granted(const Header& header, std::span<const std::byte> body) noexcept;

    void offered(const Header& header, std::span<const std::byte> body) noexcept;

    /// Reads what a grant or an offer names. @return whether it is possible
    [[nodiscard]] bool read_chunks(const Header& header, std::span<const std::byte> body,
                                   RemoteTable& table) const noexcept;
    /// From where on, and how far the devices may write a message.
    static void open_window(Operation& operation, std::uint32_t peer,
                            std::uint64_t length) noexcept;

    /// @param length  of the message, when the peer says it: not with immediate data
    void written(std::uint32_t name, const std::uint64_t* length) noexcept;

    void refused(std::uint32_t name) noexcept;

    // Now and then

    void look_around(std::int64_t now) noexcept;

    void end_late(std::int64_t now) noexcept;

    /// The peer has closed its channel, or died. What it had sent before has arrived.
    void left(int error) noexcept;

    const void* endpoint_;
    EndpointOptions options_;
    std::uint32_t number_;
    Arena arena_;
    Inbox inbox_;
    std::vector<Rail> rails_;
    UniqueFd socket_;
    Credits messages_;
    Credits control_;
    Refill refill_;
    OperationTable operations_;
    Offers offers_;
    std::uint32_t eager_limit_;
    std::uint32_t max_message_;
    RemoteAddress probe_;

    OperationTable::List queued_;
    OperationTable::List telling_;
    OperationTable::List movers_;
    OperationTable::List posted_;

    /// The receive to be offered, if any.
    std::uint32_t to_offer_ = OperationTable::none;
    std::uint32_t messages_seen_ = 0;

    std::array<std::uint32_t, Arena::send_slots> send_slot_used_{};
    std::uint32_t send_slot_ = 0;

    int broken_ = 0;
    /// It has said all that it had to say.
    bool peer_left_ = false;
    /// Whether anything has been completed since the last look.
    bool heard_ = false;
    std::uint32_t calls_ = 0;
    std::int64_t looked_ns_ = 0;
    std::int64_t probed_ns_ = 0;
};

} // namespace rdmabuf::transport::detail

// What it does, by topic.
#include <rdmabuf/transport/detail/engine_data.hpp>
#include <rdmabuf/transport/detail/engine_messages_in.hpp>
#include <rdmabuf/transport/detail/engine_messages_out.hpp>
#include <rdmabuf/transport/detail/engine_progress.hpp>
#include <rdmabuf/transport/detail/engine_requests.hpp>
