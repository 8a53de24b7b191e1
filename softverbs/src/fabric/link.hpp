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

/// What the links of a node share. It outlives them.
struct LinkContext {
    int epoll = -1;
    /// Rung by the other sides of all links.
    int doorbell = -1;
    /// Whether other processes' memory may be read.
    bool pull = true;
    /// Between Node::arm() and Node::disarm().
    bool armed = false;
    /// What has been handed to the handler so far. A record that was refused is worth another try
    /// once this has changed.
    std::uint64_t deliveries = 0;
    Cookie cookie;
};

/// Whether a descriptor that came from another process can be rung without harm: an eventfd(2) that
/// does not block.
[[nodiscard]] bool can_be_doorbell(const UniqueFd& fd) noexcept;

/// One end of a connection.
class Link final : public Connection {
  public:
    using Side = LinkMemory::Side;

    /// @param socket   connected, and in the epoll with the data @p tag
    /// @param doorbell of the other side; may be none yet
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
    /// Whether records can still be sent, as far as this process has noticed.
    [[nodiscard]] bool open() const noexcept { return state_ == State::open; }
    /// Whether the other process lives, looked up at most every millisecond.
    [[nodiscard]] bool alive() noexcept;

    /// Hands out records, at most @p budget; how many it was.
    unsigned progress(Handler& handler, unsigned budget);
    /// Reads and writes the socket.
    void service(Handler& handler);
    /// The acceptor's first message. @p hello is the connector's.
    void welcome(const Message& hello) noexcept;

    void arm() noexcept;
    void disarm() noexcept;
    /// Whether there is something to do, as seen after arm().
    [[nodiscard]] bool pending() noexcept;

    /// Whether on_gone() is due: nothing more comes, and what came has been handed out.
    [[nodiscard]] bool over() const noexcept { return state_ == State::over; }
    /// Tells the other side at once that this one goes.
    void part() noexcept;

  private:
    enum class State : std::uint8_t {
        open,
        /// The other side is gone; what it sent is being handed out.
        closing,
        over,
    };
    using Pulled = std::map<std::uint32_t, SharedFile>;

    [[nodiscard]] RingConsumer& in(Lane lane) noexcept {
        return in_[static_cast<std::size_t>(lane)];
    }
    unsigned hand_out_responses(Handler& handler, unsigned budget);
    unsigned hand_out_requests(Handler& handler, unsigned budget);
    void published(Lane lane) noexcept;
    void freed(Lane lane) noexcept;
    void offer_room(Handler& handler);
    [[nodiscard]] bool room(Lane lane, std::size_t length) noexcept;
    [[nodiscard]] bool starved_lane_has_room(std::size_t lane) noexcept;
    void handle(ReceivedMessage& received, Handler& handler);
    void import(ReceivedMessage& received) noexcept;
    [[nodiscard]] int pull_private(std::uint64_t address, std::span<std::byte> into) noexcept;
    void probe(const Message& told) noexcept;
    void flush(Handler& handler);
    void send_or_cut(const Message& message) noexcept;
    void close_when_drained() noexcept;
    void hang_up() noexcept;
    /// The other side does not keep to the protocol.
    void cut() noexcept { state_ = State::over; }
    void ring_bell() noexcept;

    // What each record needs stands first.
    LinkContext& context_;
    Direction& incoming_;
    Direction& outgoing_;
    std::array<RingConsumer, lanes> in_;
    std::array<RingProducer, lanes> out_;
    std::size_t longest_;
    State state_ = State::open;
    /// A request was refused, and when: LinkContext::deliveries.
    bool refused_ = false;
    /// Whether a lane was found full since there was room last.
    std::array<bool, lanes> starved_{};
    /// The shortest record that did not fit.
    std::array<std::size_t, lanes> wanted_{};
    std::uint64_t refused_at_ = 0;
    std::uint64_t sent_ = 0;
    std::uint64_t taken_here_ = 0;
    std::array<std::uint32_t, lanes> offers_{};
    std::int64_t alive_at_ = 0;

    GrantTable& grants_;    // by this side
    GrantTable& grants_to_; // this side, by the other one
    bool has_granted_ = false;
    /// The other side did not end a write after its grant was withdrawn.
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
    /// What was offered to the other side, and whether it has answered.
    std::map<std::uint32_t, bool> shares_;
};

} // namespace softverbs::fabric
