// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "fabric/node.hpp"
#include "fabric/tcp_frame.hpp"
#include "fabric/tcp_handshake.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// What the TCP links of a node share. It outlives them.
struct TcpContext {
    /// Watches the sockets of all links.
    int epoll = -1;
    /// Between Node::arm() and Node::disarm().
    bool armed = false;
    /// Deliveries to the handler so far. A request that the handler refused is delivered again once
    /// this has changed.
    std::uint64_t deliveries = 0;
};

/// One end of a connection between two hosts: a non-blocking TCP socket.
class TcpLink final : public Connection {
  public:
    /// @param socket     in the epoll, for EPOLLIN; connected, or being connected
    /// @param handshake  of a connector; null: the handshake is done
    TcpLink(TcpContext& context, UniqueFd socket, const Route& route, unsigned slot,
            std::unique_ptr<TcpHandshake> handshake);

    [[nodiscard]] unsigned slot() const noexcept override { return slot_; }
    [[nodiscard]] std::size_t max_record() const noexcept override { return longest_frame_record; }
    [[nodiscard]] Sent send(Lane lane,
                            std::span<const std::span<const std::byte>> parts) noexcept override;
    [[nodiscard]] bool has_room(Lane lane, std::size_t length) noexcept override;
    [[nodiscard]] std::uint64_t sent() const noexcept override { return requests_sent_; }
    [[nodiscard]] std::uint64_t taken() const noexcept override { return requests_taken_; }
    [[nodiscard]] bool delivers() noexcept override;

    // Memory is never fetched between hosts.
    [[nodiscard]] PullMethod pull_method() const noexcept override { return PullMethod::none; }
    [[nodiscard]] int pull(std::uint64_t address, std::uint32_t share,
                           std::span<std::byte> into) noexcept override;
    [[nodiscard]] std::uint32_t offer(Lane) const noexcept override { return 0; }
    void withdraw(Lane) noexcept override {}
    [[nodiscard]] bool stands(Lane, std::uint32_t) const noexcept override { return false; }
    [[nodiscard]] int share(std::uint32_t id, int fd, std::size_t length) noexcept override;
    void unshare(std::uint32_t) noexcept override {}

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    /// Whether records can be sent, as far as this process has noticed.
    [[nodiscard]] bool open() const noexcept {
        return state_ == State::connecting || state_ == State::open;
    }
    [[nodiscard]] bool connecting() const noexcept { return state_ == State::connecting; }
    /// Why the connection was closed; empty: it ended as connections do.
    [[nodiscard]] const std::string& failure() const noexcept { return failure_; }

    /// Continues the handshake, and sends what waits for the socket.
    void service();
    /// Receives and delivers records, at most @p budget. How many it delivered.
    unsigned progress(Handler& handler, unsigned budget);
    /// Informs the other side of what was consumed, where it does not know.
    void acknowledge() noexcept;
    /// Whether something is left to do that no event of the socket will announce.
    [[nodiscard]] bool pending() const noexcept;
    /// Whether on_gone() is due.
    [[nodiscard]] bool over() const noexcept { return state_ == State::over; }
    /// Ends the connection for @p why.
    void fail(std::string why);
    /// Sends what is left as far as it goes, and the end of the connection.
    void part() noexcept;

  private:
    enum class State : std::uint8_t {
        connecting,
        open,
        /// The other side has closed; what it sent is being delivered.
        closing,
        over,
    };
    static constexpr std::size_t index(Lane lane) noexcept {
        return static_cast<std::size_t>(lane);
    }

    [[nodiscard]] bool transmit(FrameKind kind,
                                std::span<const std::span<const std::byte>> parts) noexcept;
    void flush() noexcept;
    void watch_room(bool wanted) noexcept;
    void hang_up() noexcept;
    /// Reads from the socket into the buffer. False: nothing came.
    [[nodiscard]] bool receive() noexcept;
    /// The next whole frame of the buffer. False: there is none.
    [[nodiscard]] bool next_frame(FrameHeader& header, std::span<const std::byte>& record) noexcept;
    [[nodiscard]] bool account(const FrameHeader& header) noexcept;
    /// Delivers a request, or keeps it until the handler takes it. True: delivered.
    [[nodiscard]] bool deliver_request(Handler& handler, std::span<const std::byte> record);
    unsigned deliver_held(Handler& handler, unsigned budget);
    void consumed(Lane lane, std::size_t length) noexcept;
    void offer_room(Handler& handler);

    TcpContext& context_;
    UniqueFd socket_;
    unsigned slot_;
    State state_;
    std::unique_ptr<TcpHandshake> handshake_;
    std::string failure_;

    // Sending.
    std::vector<std::byte> output_;
    std::size_t output_sent_ = 0;
    bool watches_room_ = false;
    std::uint64_t requests_sent_ = 0;
    std::uint64_t requests_taken_ = 0;
    /// Bytes of frames that the other side has not consumed.
    std::array<std::uint32_t, lanes> outstanding_{};
    std::array<std::uint32_t, lanes> bytes_taken_{};
    /// Whether a lane was found full since there was room last, and the shortest frame that did not
    /// fit.
    std::array<bool, lanes> starved_{};
    std::array<std::uint32_t, lanes> wanted_{};

    // Receiving. The buffer has the alignment of its elements, and so has each record in it.
    std::vector<std::uint64_t> input_;
    std::size_t input_begin_ = 0;
    std::size_t input_end_ = 0;
    bool end_of_input_ = false;
    /// Requests that the handler refused, and those that came after them.
    std::deque<std::vector<std::uint64_t>> held_;
    std::deque<std::size_t> held_lengths_;
    std::uint64_t refused_at_ = 0;
    FrameHeader consumed_;
    FrameHeader announced_;
};

} // namespace softverbs::fabric
