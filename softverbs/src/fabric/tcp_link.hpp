// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "fabric/connection.hpp"
#include "fabric/output_buffer.hpp"
#include "fabric/tcp_frame.hpp"
#include "fabric/tcp_handshake.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// One end of a TCP connection between two hosts. The connection carries two independent streams of
/// records: requests and responses.
class TcpLink final : public Connection {
  public:
    /// @param socket  a non-blocking socket, connected or connecting, which is in the epoll
    ///     instance @p epoll for EPOLLIN
    /// @param handshake  the handshake of a connector; null for an acceptor, whose handshake is
    ///     done
    TcpLink(NodeState& context, int epoll, UniqueFd socket, const Route& route, unsigned slot,
            std::unique_ptr<TcpHandshake> handshake);

    [[nodiscard]] unsigned slot() const noexcept override { return slot_; }
    [[nodiscard]] std::size_t max_record() const noexcept override { return longest_frame_record; }
    [[nodiscard]] Sent send(Lane lane, RecordParts parts) noexcept override;
    [[nodiscard]] bool has_room(Lane lane, std::size_t length) noexcept override;
    [[nodiscard]] std::uint64_t sent() const noexcept override { return requests_sent_; }
    [[nodiscard]] std::uint64_t taken() const noexcept override { return requests_taken_; }
    [[nodiscard]] bool delivers() noexcept override;
    void close() noexcept override { state_ = State::over; }
    [[nodiscard]] int error() const noexcept override { return error_; }

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    /// Returns whether send() accepts requests and responses; while the connection is being
    /// established, it buffers them. May still return true if the other process has just ended.
    [[nodiscard]] bool open() const noexcept {
        return state_ == State::connecting || state_ == State::open;
    }
    /// Returns the time at which the handshake must have ended, in nanoseconds of now_ns(). 0: the
    /// connection is established or closed.
    [[nodiscard]] std::uint64_t handshake_deadline() const noexcept {
        return state_ == State::connecting ? handshake_deadline_ : 0;
    }
    /// Returns the reason of a failure that must be printed. Returns an empty string if there is
    /// none: the connection has not failed, was closed, or connect(2) has failed.
    [[nodiscard]] const std::string& failure() const noexcept { return failure_; }

    /// Called when the TCP socket has an event. Continues the handshake, or sends buffered frames.
    void service();
    /// Receives frames and passes at most @p budget records (requests and responses) to the
    /// callbacks of @p handler. Returns the number of records that were consumed.
    unsigned progress(Handler& handler, unsigned budget);
    /// Sends a "credit" frame, which reports to the other process how many bytes this process has
    /// consumed. Sends nothing if an earlier frame has reported the same numbers, the connection is
    /// not open, or the socket is full.
    void acknowledge() noexcept;
    /// Returns whether progress() must be called although epoll reports no event for the socket,
    /// for example because input_ contains a frame that was not delivered yet.
    [[nodiscard]] bool pending() const noexcept;
    /// Returns whether the connection is closed and all received records were delivered. TcpNetwork
    /// then calls Handler::on_closed() and frees this object.
    [[nodiscard]] bool over() const noexcept { return state_ == State::over; }
    /// Closes the connection. failure() then returns @p why, and error() returns @p error.
    void fail(std::string why, int error = 0);
    /// Sends buffered frames until they are sent or the socket is full. Then shuts down the sending
    /// direction of the connection.
    void shut_down() noexcept;

  private:
    enum class State : std::uint8_t {
        connecting,
        open,
        /// The other process has closed the connection. Requests and responses that it had sent
        /// earlier are still delivered.
        closing,
        over,
    };
    struct HeldRequest {
        std::vector<std::uint64_t> words; // aligned to 8 bytes
        std::size_t length;               // in bytes
    };
    /// Size in bytes of input_, the buffer for received frames.
    static constexpr std::size_t input_bytes = std::size_t{256} * 1024;
    static_assert(input_bytes > 2 * (frame_header_bytes + longest_frame_record));

    static constexpr std::size_t index(Lane lane) noexcept {
        return static_cast<std::size_t>(lane);
    }

    [[nodiscard]] bool transmit(FrameKind kind, RecordParts parts) noexcept;
    void flush() noexcept;
    void watch_room(bool wanted) noexcept;
    void hang_up() noexcept;
    /// Receives bytes from the socket into the buffer input_. Returns false if no bytes were
    /// received.
    [[nodiscard]] bool receive() noexcept;
    /// Copies the header of the next received frame in the buffer input_. Returns false if the
    /// header is incomplete.
    [[nodiscard]] bool peek_header(FrameHeader& header) const noexcept;
    /// Parses the next received frame in the buffer input_. Returns false if the frame is
    /// incomplete, or if it is invalid, which closes the connection.
    [[nodiscard]] bool next_frame(FrameHeader& header, std::span<const std::byte>& record) noexcept;
    /// Updates the flow control with the counters in the header of a received frame. Returns false
    /// if the other process has violated the flow control.
    [[nodiscard]] bool account(const FrameHeader& header) noexcept;
    /// Passes a received request to Handler::on_request(). If on_request() rejects the request, or
    /// if held_ contains an earlier request, stores a copy of the request in held_ and returns
    /// false.
    [[nodiscard]] bool deliver_request(Handler& handler, std::span<const std::byte> record);
    unsigned deliver_held(Handler& handler, unsigned budget);
    void consumed(Lane lane, std::size_t length) noexcept;
    void report_room(Handler& handler);

    NodeState& context_;
    int epoll_;
    UniqueFd socket_;
    unsigned slot_;
    State state_;
    std::unique_ptr<TcpHandshake> handshake_;
    std::uint64_t handshake_deadline_;
    std::string failure_;
    int error_ = 0;

    /// Frames to send that the socket has not accepted yet, because it is full.
    OutputBuffer output_;
    bool watches_room_ = false;
    std::uint64_t requests_sent_ = 0;
    std::uint64_t requests_taken_ = 0;
    /// For requests and for responses: number of frame bytes that this process has sent and the
    /// other process has not consumed yet.
    std::array<std::uint32_t, lanes> outstanding_{};
    std::array<std::uint32_t, lanes> bytes_taken_{};
    /// For requests and for responses: true if a frame to send did not fit into the flow-control
    /// window, and Handler::on_room() has not been called since then.
    std::array<bool, lanes> starved_{};
    /// One element for requests and one for responses: size in bytes of the smallest frame that
    /// could not be sent, because it did not fit into the flow-control window.
    std::array<std::uint32_t, lanes> wanted_{};

    // Buffer for received frames. The element type aligns the buffer to 8 bytes. The sizes of
    // frames and of their headers are multiples of 8, so each record in the buffer is also aligned
    // to 8 bytes.
    std::vector<std::uint64_t> input_;
    std::size_t input_begin_ = 0;
    std::size_t input_end_ = 0;
    bool end_of_input_ = false;
    /// Copies of received requests that must be delivered later: the request that
    /// Handler::on_request() has rejected, and all requests that arrived after it.
    std::deque<HeldRequest> held_;
    std::uint64_t refused_at_ = 0;
    /// For requests and for responses: number of frame bytes that this process has received, modulo
    /// 2^32.
    std::array<std::uint32_t, lanes> bytes_received_{};
    FrameHeader consumed_;
    FrameHeader announced_;
};

} // namespace softverbs::fabric
