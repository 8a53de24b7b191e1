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

/// State that all TCP links of a node share. It outlives them.
struct TcpContext {
    /// The epoll descriptor that watches the sockets of all links.
    int epoll = -1;
    /// True between Node::arm() and Node::disarm().
    bool armed = false;
    /// Counts the calls of the handler. A request that the handler rejected is delivered again
    /// after this counter has changed.
    std::uint64_t deliveries = 0;
};

/// One end of a connection between two hosts, over a non-blocking TCP socket.
class TcpLink final : public Connection {
  public:
    /// @param socket     connected or connecting; already registered in the epoll for EPOLLIN
    /// @param handshake  the handshake of a connector; null if the handshake is already done
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

    // The memory of another host cannot be read, so all data travels in records.
    [[nodiscard]] PullMethod pull_method() const noexcept override { return PullMethod::none; }
    [[nodiscard]] int pull(std::uint64_t address, std::uint32_t share,
                           std::span<std::byte> into) noexcept override;
    [[nodiscard]] std::uint32_t offer(Lane) const noexcept override { return 0; }
    void withdraw(Lane) noexcept override {}
    [[nodiscard]] bool stands(Lane, std::uint32_t) const noexcept override { return false; }
    [[nodiscard]] int share(std::uint32_t id, int fd, std::size_t length) noexcept override;
    void unshare(std::uint32_t) noexcept override {}

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    /// Returns whether records can be sent. The result may still be true after the other process
    /// has ended.
    [[nodiscard]] bool open() const noexcept {
        return state_ == State::connecting || state_ == State::open;
    }
    [[nodiscard]] bool connecting() const noexcept { return state_ == State::connecting; }
    /// The reason for the failure; empty if the connection has not failed or was closed normally.
    [[nodiscard]] const std::string& failure() const noexcept { return failure_; }

    /// Continues the handshake, and sends buffered frames.
    void service();
    /// Receives records and delivers at most @p budget of them. Returns the number of delivered
    /// records.
    unsigned progress(Handler& handler, unsigned budget);
    /// Sends a credit frame if the other side does not know yet how much was consumed.
    void acknowledge() noexcept;
    /// Returns whether progress() has work that causes no epoll event: data or a state change that
    /// is already in this process.
    [[nodiscard]] bool pending() const noexcept;
    /// Returns whether the connection is closed and all received records were delivered, so that
    /// on_closed() can be called.
    [[nodiscard]] bool over() const noexcept { return state_ == State::over; }
    /// Closes the connection and stores @p why as the reason.
    void fail(std::string why);
    /// Sends buffered frames as far as possible without blocking, then shuts down the sending
    /// direction.
    void shut_down() noexcept;

  private:
    enum class State : std::uint8_t {
        connecting,
        open,
        /// The other side has closed the connection. Records that arrived before are still being
        /// delivered.
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
    /// Receives from the socket into the buffer. Returns false if no bytes were received.
    [[nodiscard]] bool receive() noexcept;
    /// Parses the next frame in the buffer. Returns false if there is no complete or valid frame.
    [[nodiscard]] bool next_frame(FrameHeader& header, std::span<const std::byte>& record) noexcept;
    [[nodiscard]] bool account(const FrameHeader& header) noexcept;
    /// Delivers a request and returns true, or keeps a copy until the handler accepts it and
    /// returns false.
    [[nodiscard]] bool deliver_request(Handler& handler, std::span<const std::byte> record);
    unsigned deliver_held(Handler& handler, unsigned budget);
    void consumed(Lane lane, std::size_t length) noexcept;
    void report_room(Handler& handler);

    TcpContext& context_;
    UniqueFd socket_;
    unsigned slot_;
    State state_;
    std::unique_ptr<TcpHandshake> handshake_;
    std::string failure_;

    // Bytes of frames that the socket has not accepted yet.
    std::vector<std::byte> output_;
    std::size_t output_sent_ = 0;
    bool watches_room_ = false;
    std::uint64_t requests_sent_ = 0;
    std::uint64_t requests_taken_ = 0;
    /// Per lane: frame bytes that were sent and that the other side has not consumed.
    std::array<std::uint32_t, lanes> outstanding_{};
    std::array<std::uint32_t, lanes> bytes_taken_{};
    /// Per lane: a frame did not fit, and on_room() has not been called since.
    std::array<bool, lanes> starved_{};
    /// Per lane: size of the shortest frame that did not fit.
    std::array<std::uint32_t, lanes> wanted_{};

    // The receive buffer. Its elements have 8 bytes, so that each record in it is aligned.
    std::vector<std::uint64_t> input_;
    std::size_t input_begin_ = 0;
    std::size_t input_end_ = 0;
    bool end_of_input_ = false;
    /// Copies of a request that the handler has rejected, and of all requests after it.
    std::deque<std::vector<std::uint64_t>> held_;
    std::deque<std::size_t> held_lengths_;
    std::uint64_t refused_at_ = 0;
    FrameHeader consumed_;
    FrameHeader announced_;
};

} // namespace softverbs::fabric
