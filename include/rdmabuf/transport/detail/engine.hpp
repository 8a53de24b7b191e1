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

/// The local memory of a request.
struct Piece {
    const MemoryState* memory = nullptr;
    std::uintptr_t address = 0;
    std::uint64_t length = 0;
};

/// Runs the protocol of a connected channel; see protocol.hpp. Only one thread at a time may use an
/// engine, and an engine makes progress only inside its calls. The calls neither allocate nor
/// throw. While the channel works, they make no system calls except reading the clock and checking
/// whether the peer has closed its socket.
class Engine {
  public:
    /// Creates the engine of a connected channel.
    /// @param endpoint  the EndpointState whose Memory objects requests may use
    /// @param rails     the devices, with connected queue pairs and all receives posted
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
    /// Returns the errno value with which the channel failed; 0 while the channel works.
    [[nodiscard]] int broken() const noexcept { return broken_; }
    [[nodiscard]] std::uint32_t in_flight() const noexcept { return operations_.in_use(); }

    // These functions start a request. On success, each function returns 0 and sets `request`. On
    // failure, it returns an errno value and has no other effect.

    int send(const Piece& piece, Tag tag, Request& request) noexcept;

    int receive(const Piece& piece, Tag tag, Request& request) noexcept;

    int put(const Piece& piece, const RemoteMemory& remote, std::uint64_t offset,
            const std::uint64_t* value, Request& request) noexcept;

    int get(const Piece& piece, const RemoteMemory& remote, std::uint64_t offset,
            Request& request) noexcept;

    int flush(const Piece& piece, Request& request) noexcept;

    /// Sets @p value to the value of the oldest iput_notify() of the peer whose value was not
    /// returned yet.
    /// @return false if there is no such value
    bool notification(std::uint64_t& value) noexcept;

    // Progress

    /// Makes progress and sets @p outcome to the state of @p request.
    /// @return 0; EINVAL for a request of another channel; ESTALE if the completion was reported
    ///         before
    int test(const Request& request, Outcome& outcome) noexcept;

    void progress() noexcept;

    /// Makes progress until all queued messages are sent and acknowledged, or until
    /// EndpointOptions::linger is over.
    void drain() noexcept;

    /// Fails the channel with @p error and ends all its requests. If the channel has failed before,
    /// the call has no effect.
    /// @param culprit  index of the operation that ends with @p culprit_error instead of @p error
    void fail(int error, std::uint32_t culprit = OperationTable::none,
              int culprit_error = 0) noexcept;

  private:
    static constexpr std::uint32_t calls_between_looks = 256;
    /// The number of send queue entries that are reserved for credit messages and keepalive probes.
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

    /// Starts the RDMA write or read of all bytes of @p operation.
    void move(Operation& operation, std::uint32_t i, const RemoteMemory& remote,
              std::uint64_t offset) noexcept;

    /// Copies a table of the peer's regions, but only the regions for the devices that this channel
    /// uses.
    void copy_used(const RemoteTable& from, RemoteTable& to) const noexcept;

    void finish(std::uint32_t i, int error = 0) noexcept;

    /// If all data of the operation with the index @p i is transferred, ends the operation, or
    /// sends its FIN (end of the data) or its notification.
    void settle(std::uint32_t i) noexcept;

    void end_operations(int error, std::uint32_t culprit, int culprit_error) noexcept;

    // Devices and completions

    void stop_devices() noexcept;

    static void note_completed(Rail& rail, const WorkId& id) noexcept {
        if (id.work == Work::remote) {
            rail.to_peer.completed(id.sequence);
        } else if (id.work == Work::local) {
            rail.to_self.completed(id.sequence);
        }
    }

    /// Polls the completion queues of all devices. @return true if a work request has completed
    bool poll() noexcept;

    void complete(Rail& rail, const WorkCompletion& completion) noexcept;

    /// Fails the channel because of a failed completion. The status determines two errno values:
    /// one for the request that caused the failure, one for all other requests.
    void explain(const WorkId& id, ibv_wc_status status) noexcept;

    /// Posts one work request to a send queue. @p make is a function that builds and posts the work
    /// request.
    /// @return false if the queue is full, or if posting failed; a failure other than a full queue
    ///         fails the channel
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

    /// Posts an RDMA write of 0 bytes to the peer. Its completion shows that the peer's device
    /// responds.
    void probe() noexcept;

    /// Reads one byte of the operation's memory through each device. After this flush read, data
    /// that the device wrote earlier is visible to the GPU.
    void read_back(Operation& operation, std::uint32_t i) noexcept;

    // Data transfer

    void move_data() noexcept;

    /// Called after the last RDMA write of the current part of a message is posted. If the channel
    /// has only one device, sends the FIN (end of the data) or the notification at once, because
    /// the queue pair keeps the order.
    void moved_all(Operation& operation, std::uint32_t i) noexcept;

    [[nodiscard]] bool move_piece(Operation& operation, std::uint32_t i) noexcept;

    /// Returns the number of bytes of @p operation that one device transfers before the next device
    /// continues.
    [[nodiscard]] std::uint64_t stripe(const Operation& operation) const noexcept;

    // Outgoing messages

    /// Sends a message on the first device.
    /// @param body       bytes that are copied behind the header
    /// @param data       bytes that the device reads and sends behind @p body; may be null
    /// @param operation  index of the operation that waits for the completion, or none
    /// @param reserve    number of send queue entries that must remain free
    /// @return false if the message cannot be sent now
    [[nodiscard]] bool send_message(Header header, std::span<const std::byte> body,
                                    const ibv_sge* data, std::uint32_t operation,
                                    std::uint32_t reserve) noexcept;

    /// Sends the queued messages and notifications, in the order in which they were started.
    void send_queued() noexcept;

    [[nodiscard]] bool send_operation(Operation& operation, std::uint32_t i) noexcept;

    /// Starts to write a message directly to the buffer of a receive that the peer has advertised.
    /// @param number  index of the advertisement in offers_
    /// @return false if the message is not sent this way; the advertisement is then removed
    [[nodiscard]] bool take_offer(Operation& operation, std::uint32_t i,
                                  std::uint32_t number) noexcept;
    /// Records that the FIN (end of the data) was sent, and removes the advertisement that
    /// @p operation has used.
    void told(Operation& operation) noexcept;

    /// Sets @p data to the scatter/gather entry of the whole message.
    /// @return false if the message spans several registered chunks
    [[nodiscard]] static bool gather(const Operation& operation, ibv_sge& data) noexcept;

    /// Sends the queued control messages: CTS (clear to send), NACK, and FIN (end of the data).
    void send_control() noexcept;

    [[nodiscard]] bool send_control_of(Operation& operation, std::uint32_t i) noexcept;

    [[nodiscard]] std::span<const std::byte> grant(
        const Operation& operation, std::uint64_t length, Header& header,
        std::array<GrantedChunk, max_chunks>& chunks) const noexcept;

    void send_credits() noexcept;

    /// Schedules send_offer() for a posted receive if its buffer is longer than the eager limit and
    /// no earlier receive has the same tag.
    void consider_offer(std::uint32_t i) noexcept;
    /// Advertises a posted receive to the peer before its message arrives. The advertisement is
    /// optional: it is dropped if it cannot be sent now.
    void send_offer() noexcept;

    // Incoming messages

    /// Posts one receive for each bounce buffer whose index is in @p slots. The number of indices
    /// is at most Refill::capacity.
    void post_slots(std::span<const std::uint32_t> slots) noexcept;
    /// Reposts the receives of consumed bounce buffers. The next message to the peer returns the
    /// credits for these receives.
    void refill() noexcept;
    void free_message_slot(std::uint32_t slot) noexcept;
    void free_control_slot(std::uint32_t slot) noexcept;

    void arrived(std::uint32_t slot, const WorkCompletion& completion) noexcept;

    void message(std::uint32_t slot, const Header& header) noexcept;

    void take_message(std::uint32_t i, std::uint32_t slot, const Header& header) noexcept;

    /// Copies an eager message to memory that the CPU cannot write. The loopback queue pair reads
    /// the message from the bounce buffer.
    void land(Operation& operation, std::uint32_t i) noexcept;

    /// Returns true if a send operation can process a CTS (clear to send) now.
    [[nodiscard]] static bool expects_grant(const Operation& operation) noexcept;
    void granted(const Header& header, std::span<const std::byte> body) noexcept;

    void offered(const Header& header, std::span<const std::byte> body) noexcept;

    /// Decodes the regions in a CTS (clear to send) or in a posted-receive advertisement.
    /// @return false if the regions are invalid
    [[nodiscard]] bool read_chunks(const Header& header, std::span<const std::byte> body,
                                   RemoteTable& table) const noexcept;
    /// Sets the part of the message that the devices may write now, after a CTS (clear to send) or
    /// an advertisement. The part begins at byte Operation::moved of the message.
    /// @param peer    the receive operation of the peer
    /// @param length  length of the part in bytes
    static void open_window(Operation& operation, std::uint32_t peer,
                            std::uint64_t length) noexcept;

    /// Processes a FIN: the peer has written data to a receive buffer of this end.
    /// @param name    the receive operation, as OperationTable::name() encodes it
    /// @param length  the length of the message in bytes; null if the FIN was immediate data
    void written(std::uint32_t name, const std::uint64_t* length) noexcept;

    void refused(std::uint32_t name) noexcept;

    // Periodic checks

    void look_around(std::int64_t now) noexcept;

    void end_late(std::int64_t now) noexcept;

    /// Called when the peer has closed its channel, or its process has ended. Messages that arrived
    /// earlier can still be received.
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

    /// Index of the receive that send_offer() advertises, or none.
    std::uint32_t to_offer_ = OperationTable::none;
    std::uint32_t messages_seen_ = 0;

    std::array<std::uint32_t, Arena::send_slots> send_slot_used_{};
    std::uint32_t send_slot_ = 0;

    int broken_ = 0;
    /// True if the peer has closed its channel. Messages that arrived earlier can still be
    /// received.
    bool peer_left_ = false;
    /// True if a work request has completed since the last keepalive check.
    bool heard_ = false;
    std::uint32_t calls_ = 0;
    std::int64_t looked_ns_ = 0;
    std::int64_t probed_ns_ = 0;
};

} // namespace rdmabuf::transport::detail

// These headers define the member functions of Engine, one header per topic.
#include <rdmabuf/transport/detail/engine_data.hpp>
#include <rdmabuf/transport/detail/engine_messages_in.hpp>
#include <rdmabuf/transport/detail/engine_messages_out.hpp>
#include <rdmabuf/transport/detail/engine_progress.hpp>
#include <rdmabuf/transport/detail/engine_requests.hpp>
