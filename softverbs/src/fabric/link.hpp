// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>

#include "fabric/link_memory.hpp"
#include "fabric/mailbox.hpp"
#include "fabric/node.hpp"
#include "fabric/pull.hpp"
#include "fabric/ring.hpp"
#include "fabric/shared_file.hpp"

namespace softverbs::fabric {

/// State that is shared by all links of a node. The node owns it; it is destroyed after the links.
struct LinkContext {
    int epoll = -1;
    /// The eventfd of this process. The other process of each link writes to it to wake this
    /// process.
    int doorbell = -1;
    /// Whether this process may read memory of other processes with process_vm_readv(2).
    bool pull = true;
    /// True between Node::arm() and Node::disarm().
    bool armed = false;
    /// Number of records and events that were delivered to the handler. A request that the handler
    /// has rejected is delivered again only after this number has changed.
    std::uint64_t deliveries = 0;
    Cookie cookie;
};

/// Returns whether a descriptor from another process is a non-blocking eventfd(2). Writing to such
/// a descriptor has no harmful effects.
[[nodiscard]] bool can_be_doorbell(const UniqueFd& fd) noexcept;

/// One end of a connection between two processes of this host.
class Link final : public Connection {
  public:
    using Side = LinkMemory::Side;

    /// @param socket    a connected socket, which is in the epoll with the event data @p tag
    /// @param doorbell  the eventfd of the other process; empty if it has not been received yet
    Link(LinkContext& context, UniqueFd socket, std::uint64_t tag, LinkMemory memory, Side side,
         unsigned slot, pid_t pid, UniqueFd doorbell);

    [[nodiscard]] unsigned slot() const noexcept override { return slot_; }
    [[nodiscard]] std::size_t max_record() const noexcept override { return longest_; }
    [[nodiscard]] Sent send(Lane lane, RecordParts parts) noexcept override;
    [[nodiscard]] std::byte* reserve(Lane lane, std::size_t length) noexcept override;
    void commit(Lane lane, std::size_t length) noexcept override;
    [[nodiscard]] bool has_room(Lane lane, std::size_t length) noexcept override;
    [[nodiscard]] std::uint64_t sent() const noexcept override { return sent_; }
    [[nodiscard]] std::uint64_t taken() const noexcept override;
    [[nodiscard]] PullMethod pull_method() const noexcept override;
    [[nodiscard]] int pull(std::uint64_t address, std::uint32_t share,
                           std::span<std::byte> into) noexcept override;
    [[nodiscard]] std::uint32_t offer(Lane lane) const noexcept override {
        return offers_[static_cast<std::size_t>(lane)];
    }
    void withdraw(Lane lane) noexcept override;
    [[nodiscard]] bool stands(Lane lane, std::uint32_t offer) const noexcept override;
    [[nodiscard]] int share(std::uint32_t id, int fd, std::size_t length) noexcept override;
    void unshare(std::uint32_t id) noexcept override;
    bool grant(const WriteGrant& grant) noexcept override;
    void withdraw_grants() noexcept override;
    [[nodiscard]] bool write_in_progress() noexcept override;
    [[nodiscard]] bool write_granted(std::uint64_t writer, std::uint64_t key, std::uint64_t address,
                                     std::span<const std::byte> bytes) noexcept override;

    [[nodiscard]] int socket() const noexcept { return mailbox_.socket(); }
    /// Returns whether records can be sent. If the other process has just ended, this may still be
    /// true.
    [[nodiscard]] bool open() const noexcept { return state_ == State::open; }
    /// Returns whether the other process is alive. The result is cached for 1 millisecond.
    [[nodiscard]] bool alive() noexcept;

    /// Delivers up to @p budget records to @p handler. Returns their number.
    unsigned progress(Handler& handler, unsigned budget);
    /// Sends the queued messages, and receives messages from the socket.
    void service(Handler& handler);
    /// Sends the welcome message, which is the reply of the acceptor to the hello message @p hello.
    void welcome(const Message& hello) noexcept;

    void arm() noexcept;
    void disarm() noexcept;
    /// Returns whether a received record can be delivered, or a lane that was full has room again.
    /// It must be called after arm(): records that arrive later ring the doorbell.
    [[nodiscard]] bool pending() noexcept;

    /// Returns whether the connection is closed and all received records were delivered. The node
    /// then calls Handler::on_closed() and frees the link.
    [[nodiscard]] bool over() const noexcept { return state_ == State::over; }
    /// Shuts the socket down. The other process then detects the end of the connection.
    void shut_down() noexcept;

  private:
    enum class State : std::uint8_t {
        open,
        /// The other process has closed the socket. Records that it sent before are still
        /// delivered.
        closing,
        over,
    };
    using Pulled = std::map<std::uint32_t, SharedFile>;

    [[nodiscard]] RingConsumer& in(Lane lane) noexcept {
        return in_[static_cast<std::size_t>(lane)];
    }
    unsigned deliver_responses(Handler& handler, unsigned budget);
    unsigned deliver_requests(Handler& handler, unsigned budget);
    void published(Lane lane) noexcept;
    void freed(Lane lane) noexcept;
    void report_room(Handler& handler);
    [[nodiscard]] bool room(Lane lane, std::size_t length) noexcept;
    [[nodiscard]] bool starved_lane_has_room(std::size_t lane) noexcept;
    void handle(ReceivedMessage& received, Handler& handler);
    void import(ReceivedMessage& received) noexcept;
    [[nodiscard]] int pull_private(std::uint64_t address, std::span<std::byte> into) noexcept;
    void probe(const Message& message) noexcept;
    void flush(Handler& handler);
    void send_or_cut(const Message& message) noexcept;
    void close_when_drained() noexcept;
    void hang_up() noexcept;
    /// Closes the connection, because the other process violated the protocol.
    void cut() noexcept { state_ = State::over; }
    void ring_doorbell() noexcept;

    // These members are used for each record. They are adjacent, so that they share cache lines.
    LinkContext& context_;
    Direction& incoming_;
    Direction& outgoing_;
    std::array<RingConsumer, lanes> in_;
    std::array<RingProducer, lanes> out_;
    std::size_t longest_;
    State state_ = State::open;
    /// True if the handler has rejected the next request. Then refused_at_ is the value of
    /// LinkContext::deliveries at the time of the rejection.
    bool refused_ = false;
    /// For each lane: whether a record did not fit into the ring, and Handler::on_room() has not
    /// been called since.
    std::array<bool, lanes> starved_{};
    /// For each lane: length in bytes of the shortest record that did not fit into the ring.
    std::array<std::size_t, lanes> wanted_{};
    std::uint64_t refused_at_ = 0;
    std::uint64_t sent_ = 0;
    std::uint64_t taken_here_ = 0;
    std::array<std::uint32_t, lanes> offers_{};
    std::uint64_t alive_at_ = 0;

    GrantTable& grants_;    // for memory of this process
    GrantTable& grants_to_; // for memory of the other process
    bool has_granted_ = false;
    /// An odd number means that the other process was executing a direct write when
    /// withdraw_grants() was called; this is the value of Direction::writing at that time. An even
    /// number means that no such write is in progress.
    std::uint32_t ending_write_ = 0;
    /// Time until which write_in_progress() waits for the end of this write, by CLOCK_MONOTONIC in
    /// nanoseconds. A process that misbehaves may never end it.
    std::uint64_t ending_write_until_ = 0;
    /// The last value that this process has stored in Direction::writing, for its own direct
    /// writes.
    std::uint32_t direct_writes_ = 0;

    Side side_;
    unsigned slot_;
    pid_t pid_;
    bool can_pull_ = false;
    bool welcomed_;
    LinkMemory memory_;
    UniqueFd doorbell_;
    Mailbox mailbox_;
    Pulled pulled_;
    /// The memory that this process shares with the other process: whether the other process has
    /// replied to the share message, by the id of the memory.
    std::map<std::uint32_t, bool> shares_;
};

} // namespace softverbs::fabric
