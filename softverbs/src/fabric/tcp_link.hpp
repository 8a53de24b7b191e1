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
#include "fabric/output_buffer.hpp"
#include "fabric/tcp_frame.hpp"
#include "fabric/tcp_handshake.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// State that all TCP links (connections to other hosts) of a node share. It is destroyed after the
/// links.
struct TcpContext {
    /// The epoll that contains the sockets of all links.
    int epoll = -1;
    /// True between Node::arm() and Node::disarm(), when a thread may sleep in Node::wait().
    bool armed = false;
    /// Number of records and events that were delivered to the handler. While this number does not
    /// change, a request that the handler has rejected does not prevent Node::arm().
    std::uint64_t deliveries = 0;
};

/// One end of a TCP connection between two hosts. The TCP connection carries two lanes (independent
/// streams of records): requests and responses.
class TcpLink final : public Connection {
  public:
    /// @param socket     a non-blocking socket, connected or connecting, which is in the epoll for
    ///     EPOLLIN
    /// @param handshake  the handshake of a connector; null for an acceptor, whose handshake is
    ///     done
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

    // The memory of a process on another host cannot be read, so all data is sent in records.
    [[nodiscard]] PullMethod pull_method() const noexcept override { return PullMethod::none; }
    [[nodiscard]] int pull(std::uint64_t address, std::uint32_t share,
                           std::span<std::byte> into) noexcept override;
    [[nodiscard]] std::uint32_t offer(Lane) const noexcept override { return 0; }
    void withdraw(Lane) noexcept override {}
    [[nodiscard]] bool stands(Lane, std::uint32_t) const noexcept override { return false; }
    [[nodiscard]] int share(std::uint32_t id, int fd, std::size_t length) noexcept override;
    void unshare(std::uint32_t) noexcept override {}

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    /// Returns whether records can be sent or buffered. May still return true if the other process
    /// has just ended.
    [[nodiscard]] bool open() const noexcept {
        return state_ == State::connecting || state_ == State::open;
    }
    [[nodiscard]] bool connecting() const noexcept { return state_ == State::connecting; }
    /// Returns the reason why the connection failed, or an empty string if it did not fail.
    [[nodiscard]] const std::string& failure() const noexcept { return failure_; }

    /// Called when the socket has an event. Continues the handshake, or sends buffered frames.
    void service();
    /// Receives frames and delivers up to @p budget records to @p handler. Returns the number of
    /// delivered records.
    unsigned progress(Handler& handler, unsigned budget);
    /// Sends a "credit" frame, which reports how many bytes this process has consumed. Sends
    /// nothing if an earlier frame has reported the same numbers.
    void acknowledge() noexcept;
    /// Returns whether progress() must be called although epoll reports no event, for example
    /// because a received frame was not delivered yet.
    [[nodiscard]] bool pending() const noexcept;
    /// Returns whether the connection is closed and all received records were delivered. The node
    /// then calls Handler::on_closed() and frees this link.
    [[nodiscard]] bool over() const noexcept { return state_ == State::over; }
    /// Closes the connection. @p why is the reason, which failure() then returns.
    void fail(std::string why);
    /// Sends buffered frames until the socket is full. Then shuts down the sending direction of the
    /// connection.
    void shut_down() noexcept;

  private:
    enum class State : std::uint8_t {
        connecting,
        open,
        /// The other process has closed the connection. Records that it had sent earlier are still
        /// delivered.
        closing,
        over,
    };
    /// Size of the buffer input_ in bytes.
    static constexpr std::size_t input_bytes = std::size_t{256} * 1024;
    static_assert(input_bytes > 2 * (frame_header_bytes + longest_frame_record));

    static constexpr std::size_t index(Lane lane) noexcept {
        return static_cast<std::size_t>(lane);
    }

    [[nodiscard]] bool transmit(FrameKind kind,
                                std::span<const std::span<const std::byte>> parts) noexcept;
    void flush() noexcept;
    void watch_room(bool wanted) noexcept;
    void hang_up() noexcept;
    /// Receives bytes from the socket into the buffer input_. Returns false if no bytes were
    /// received.
    [[nodiscard]] bool receive() noexcept;
    /// Parses the next frame in input_. Returns false if the frame is incomplete or invalid.
    [[nodiscard]] bool next_frame(FrameHeader& header, std::span<const std::byte>& record) noexcept;
    /// Updates the flow control with the counters in a frame header. Returns false if the other
    /// process has violated the flow control.
    [[nodiscard]] bool account(const FrameHeader& header) noexcept;
    /// Delivers a request to the handler. If the handler rejects the request, or if an earlier
    /// request is still in held_, stores a copy of the request in held_ and returns false.
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

    /// Frames that the socket has not accepted yet.
    OutputBuffer output_;
    bool watches_room_ = false;
    std::uint64_t requests_sent_ = 0;
    std::uint64_t requests_taken_ = 0;
    /// For each lane: number of frame bytes that this process has sent and the other process has
    /// not consumed yet.
    std::array<std::uint32_t, lanes> outstanding_{};
    std::array<std::uint32_t, lanes> bytes_taken_{};
    /// For each lane: whether a frame did not fit into the flow-control window, and
    /// Handler::on_room() has not been called since then.
    std::array<bool, lanes> starved_{};
    /// For each lane: size in bytes of the smallest frame that did not fit into the flow-control
    /// window.
    std::array<std::uint32_t, lanes> wanted_{};

    // Buffer for received frames. The element type aligns the buffer to 8 bytes. The lengths of
    // frames are multiples of 8, so each record is also aligned to 8 bytes.
    std::vector<std::uint64_t> input_;
    std::size_t input_begin_ = 0;
    std::size_t input_end_ = 0;
    bool end_of_input_ = false;
    /// Copies of the first request that the handler has rejected, and of all later requests.
    std::deque<std::vector<std::uint64_t>> held_;
    std::deque<std::size_t> held_lengths_;
    std::uint64_t refused_at_ = 0;
    /// For each lane: number of frame bytes that were received, modulo 2^32.
    std::array<std::uint32_t, lanes> bytes_received_{};
    FrameHeader consumed_;
    FrameHeader announced_;
};

} // namespace softverbs::fabric
