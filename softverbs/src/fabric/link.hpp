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

/// State that all links of a node share. It outlives them.
struct LinkContext {
    int epoll = -1;
    /// The eventfd that the other processes of all links ring.
    int doorbell = -1;
    /// Whether process_vm_readv(2) may be used to read the memory of other processes.
    bool pull = true;
    /// True between Node::arm() and Node::disarm().
    bool armed = false;
    /// Counts the calls of the handler. A request that the handler rejected is delivered again
    /// after this counter has changed.
    std::uint64_t deliveries = 0;
    Cookie cookie;
};

/// Whether a descriptor received from another process is a non-blocking eventfd(2), which can be
/// written without harm.
[[nodiscard]] bool can_be_doorbell(const UniqueFd& fd) noexcept;

/// One end of a connection within a host.
class Link final : public Connection {
  public:
    using Side = LinkMemory::Side;

    /// @param socket    connected; already registered in the epoll with the event data @p tag
    /// @param doorbell  the eventfd of the other side; empty if it is not known yet
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
    [[nodiscard]] bool write_granted(std::uint64_t writer, std::uint64_t key, std::uint64_t address,
                                     std::span<const std::byte> bytes) noexcept override;

    [[nodiscard]] int socket() const noexcept { return mailbox_.socket(); }
    /// Returns whether records can be sent. The result may still be true after the other process
    /// has ended.
    [[nodiscard]] bool open() const noexcept { return state_ == State::open; }
    /// Whether the other process is alive. The result is cached for one millisecond.
    [[nodiscard]] bool alive() noexcept;

    /// Delivers at most @p budget records to @p handler and returns their number.
    unsigned progress(Handler& handler, unsigned budget);
    /// Receives messages from the socket, and sends the queued ones.
    void service(Handler& handler);
    /// Sends the first message of the acceptor. @p hello is the connector's first message.
    void welcome(const Message& hello) noexcept;

    void arm() noexcept;
    void disarm() noexcept;
    /// Returns whether a received record can be delivered, or whether a full lane has room again.
    /// Call it after arm().
    [[nodiscard]] bool pending() noexcept;

    /// Returns whether the connection is closed and all received records were delivered, so that
    /// on_closed() can be called.
    [[nodiscard]] bool over() const noexcept { return state_ == State::over; }
    /// Shuts the socket down, so that the other side detects the end of the connection at once.
    void shut_down() noexcept;

  private:
    enum class State : std::uint8_t {
        open,
        /// The other side has closed the socket. Records that arrived before are still being
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
    /// Closes the connection because the other side violated the protocol.
    void cut() noexcept { state_ = State::over; }
    void ring_doorbell() noexcept;

    // The members that each record needs come first, to share cache lines.
    LinkContext& context_;
    Direction& incoming_;
    Direction& outgoing_;
    std::array<RingConsumer, lanes> in_;
    std::array<RingProducer, lanes> out_;
    std::size_t longest_;
    State state_ = State::open;
    /// Whether the handler has rejected the next request. refused_at_ is then the value of
    /// LinkContext::deliveries at that time.
    bool refused_ = false;
    /// Per lane: a record did not fit, and on_room() has not been called since.
    std::array<bool, lanes> starved_{};
    /// Per lane: the length of the shortest record that did not fit.
    std::array<std::size_t, lanes> wanted_{};
    std::uint64_t refused_at_ = 0;
    std::uint64_t sent_ = 0;
    std::uint64_t taken_here_ = 0;
    std::array<std::uint32_t, lanes> offers_{};
    std::int64_t alive_at_ = 0;

    GrantTable& grants_;    // grants by this side to the other side
    GrantTable& grants_to_; // grants by the other side to this side
    bool has_granted_ = false;
    /// False after the other side did not end a direct write within the time limit of
    /// withdraw_grants(). It then gets no more grants.
    bool trusts_writer_ = true;

    Side side_;
    unsigned slot_;
    pid_t pid_;
    bool can_pull_ = false;
    bool welcomed_;
    LinkMemory memory_;
    UniqueFd doorbell_;
    Mailbox mailbox_;
    Pulled pulled_;
    /// The ids of the memory that this side shares, and whether the other side has replied.
    std::map<std::uint32_t, bool> shares_;
};

} // namespace softverbs::fabric
