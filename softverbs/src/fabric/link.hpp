// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>

#include "fabric/link_memory.hpp"
#include "fabric/mailbox.hpp"
#include "fabric/pull.hpp"
#include "fabric/ring.hpp"
#include "fabric/shared_file.hpp"

namespace softverbs::fabric {

/// State that all connections of this process to processes of the same host share. Node owns
/// the state and destroys it after the connections.
struct LinkContext : NodeState {
    int epoll = -1;
    /// The eventfd that wakes this process. The processes at the other ends of the connections
    /// write to it.
    int doorbell = -1;
    /// Whether SOFTVERBS_PULL and NodeOptions::reaches_memory permit that this process accesses
    /// memory of other processes directly.
    bool pull = true;
    Cookie cookie;
};

/// Returns whether a file descriptor that another process sent is non-blocking and can be an
/// eventfd(2). Writing to a pipe, a socket or a file could have harmful effects.
[[nodiscard]] bool can_be_doorbell(const UniqueFd& fd) noexcept;

/// One end of a connection between two processes of this host.
class Link final : public Connection {
  public:
    using Side = LinkMemory::Side;

    /// @param socket  a connected Unix socket, which is in the epoll instance as EventSource::link
    /// @param doorbell  the eventfd that wakes the other process; empty if it was not received yet
    Link(LinkContext& context, UniqueFd socket, LinkMemory memory, Side side, unsigned slot,
         pid_t pid, UniqueFd doorbell);

    [[nodiscard]] unsigned slot() const noexcept override { return slot_; }
    [[nodiscard]] std::size_t max_record() const noexcept override { return longest_; }
    [[nodiscard]] Sent send(Lane lane, RecordParts parts) noexcept override;
    [[nodiscard]] std::byte* reserve(Lane lane, std::size_t length) noexcept override;
    void commit(Lane lane, std::size_t length) noexcept override;
    [[nodiscard]] bool has_room(Lane lane, std::size_t length) noexcept override;
    [[nodiscard]] bool delivers() noexcept override;
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
    void close() noexcept override { cut(); }
    bool grant(const WriteGrant& grant) noexcept override;
    void withdraw_grants() noexcept override;
    [[nodiscard]] bool write_in_progress() noexcept override;
    [[nodiscard]] bool write_granted(std::uint64_t writer, std::uint64_t key, std::uint64_t address,
                                     RecordParts parts) noexcept override;

    [[nodiscard]] int socket() const noexcept { return mailbox_.socket(); }
    /// Returns whether the connection is open, so that records can be sent. May still return true
    /// if the other process has just ended.
    [[nodiscard]] bool open() const noexcept { return state_ == State::open; }
    /// Returns whether the connection is open and the other process exists. A positive result is
    /// cached for 1 millisecond.
    [[nodiscard]] bool alive() noexcept;

    /// Passes at most @p budget received records (requests and responses) to the callbacks of @p
    /// handler. Returns the number of records that were consumed.
    unsigned progress(Handler& handler, unsigned budget);
    /// Sends the queued messages on the Unix socket of this connection, and handles the messages
    /// that have arrived on this socket.
    void service(Handler& handler);
    /// Sends the "welcome" message, with which the acceptor of a connection replies to the "hello"
    /// message @p hello.
    void welcome(const Message& hello) noexcept;

    void arm() noexcept;
    void disarm() noexcept;
    /// Returns whether progress() has work: a received record can be delivered, a full lane (the
    /// stream of requests or of responses) has room again, or the connection is closed. Must be
    /// called after arm(), so that the other process wakes this process for each record that
    /// arrives later.
    [[nodiscard]] bool pending() noexcept;

    /// Returns whether the connection is closed and all received records were delivered. Node
    /// then calls Handler::on_closed() and frees this object.
    [[nodiscard]] bool over() const noexcept { return state_ == State::over; }
    /// Shuts the Unix socket down, so that the other process detects the end of the connection.
    void shut_down() noexcept;

  private:
    enum class State : std::uint8_t {
        open,
        /// The other process has closed the socket. Records (requests and responses) that it had
        /// sent earlier are still delivered.
        closing,
        over,
    };
    using Pulled = std::map<std::uint32_t, SharedFile>;

    [[nodiscard]] RingConsumer& in(Lane lane) noexcept {
        return in_[static_cast<std::size_t>(lane)];
    }
    template <Lane lane>
    unsigned deliver(Handler& handler, unsigned budget);
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
    /// Closes the connection at once, for example because the other process violated the protocol.
    void cut() noexcept { state_ = State::over; }
    void ring_doorbell() noexcept;

    // These members are used for each sent or received record. They are adjacent, so that they
    // share cache lines.
    LinkContext& context_;
    Direction& incoming_;
    Direction& outgoing_;
    std::array<RingConsumer, lanes> in_;
    std::array<RingProducer, lanes> out_;
    std::size_t longest_;
    State state_ = State::open;
    /// True if Handler::on_request() has rejected the oldest request in the ring of received
    /// requests.
    bool refused_ = false;
    /// For requests and for responses: true if a record did not fit into the ring for sending, and
    /// Handler::on_room() has not been called since then.
    std::array<bool, lanes> starved_{};
    /// For requests and for responses: length in bytes of the shortest record that did not fit into
    /// the ring for sending.
    std::array<std::size_t, lanes> wanted_{};
    /// If refused_ is true: the value of LinkContext::deliveries at the time of the rejection.
    std::uint64_t refused_at_ = 0;
    std::uint64_t sent_ = 0;
    std::uint64_t taken_here_ = 0;
    std::array<std::uint32_t, lanes> offers_{};
    std::uint64_t alive_at_ = 0;

    GrantTable& grants_;    // permissions to write to memory of this process
    GrantTable& grants_to_; // permissions to write to memory of the other process
    bool has_granted_ = false;
    /// The value of Direction::writing that withdraw_grants() has read last, after it had withdrawn
    /// the write permissions of the other process. An odd value means that the other process was
    /// executing a direct write at that time. An even value means that no direct write was in
    /// progress, or that it has ended.
    std::uint32_t ending_write_ = 0;
    /// If ending_write_ is odd: time of the next report on stderr that this direct write has not
    /// ended, in nanoseconds of now_ns().
    std::uint64_t report_write_at_ = 0;
    /// The value that this process has last stored in Direction::writing, before or after one of
    /// its own direct writes.
    std::uint32_t direct_writes_ = 0;

    unsigned slot_;
    pid_t pid_;
    /// Empty if this process cannot access memory of the other process.
    ProcessMemory peer_memory_;
    bool welcomed_;
    LinkMemory memory_;
    UniqueFd doorbell_;
    Mailbox mailbox_;
    Pulled pulled_;
    /// The key is the id of memory that this process shares with the other process. The value is
    /// true if the other process has replied to the "share" message.
    std::map<std::uint32_t, bool> shares_;
};

} // namespace softverbs::fabric
