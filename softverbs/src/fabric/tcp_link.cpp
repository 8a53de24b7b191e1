// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/tcp_link.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "fabric/epoll.hpp"
#include "fabric/no_cancellation.hpp"

namespace softverbs::fabric {
namespace {

constexpr std::size_t input_bytes = std::size_t{256} * 1024;
static_assert(input_bytes > 2 * (frame_header_bytes + longest_frame_record));
/// Maximum number of buffers in one sendmsg(2): header, parts of the record, and padding.
constexpr std::size_t most_parts = 32;
/// A credit frame is sent when this number of bytes was consumed since the last frame.
constexpr std::uint32_t announced_after = window_bytes / 4;

} // namespace

TcpLink::TcpLink(TcpContext& context, UniqueFd socket, const Route& route, unsigned slot,
                 std::unique_ptr<TcpHandshake> handshake)
    : Connection(route),
      context_(context),
      socket_(std::move(socket)),
      slot_(slot),
      state_(handshake ? State::connecting : State::open),
      handshake_(std::move(handshake)) {
    // Watch for EPOLLOUT during the handshake, because the epoll reports it when connect(2) has
    // completed.
    watch_room(handshake_ != nullptr);
}

int TcpLink::pull(std::uint64_t address, std::uint32_t share, std::span<std::byte> into) noexcept {
    static_cast<void>(address);
    static_cast<void>(share);
    static_cast<void>(into);
    return EPERM;
}

int TcpLink::share(std::uint32_t id, int fd, std::size_t length) noexcept {
    static_cast<void>(id);
    static_cast<void>(fd);
    static_cast<void>(length);
    return EOPNOTSUPP;
}

bool TcpLink::has_room(Lane lane, std::size_t length) noexcept {
    const std::size_t at = index(lane);
    const std::uint32_t needed = frame_bytes(length);
    if (!open() || outstanding_[at] + needed <= window_bytes) {
        return true;
    }
    wanted_[at] = starved_[at] ? std::min(wanted_[at], needed) : needed;
    starved_[at] = true;
    return false;
}

Sent TcpLink::send(Lane lane, std::span<const std::span<const std::byte>> parts) noexcept {
    if (!open()) [[unlikely]] {
        return Sent::closed;
    }
    const NoCancellation not_cancelled;
    std::size_t length = 0;
    for (const auto part : parts) {
        length += part.size();
    }
    assert(length <= longest_frame_record);
    if (!has_room(lane, length)) {
        return Sent::full;
    }
    if (!transmit(lane == Lane::requests ? FrameKind::request : FrameKind::response, parts)) {
        return Sent::closed;
    }
    outstanding_[index(lane)] += frame_bytes(length);
    requests_sent_ += lane == Lane::requests ? 1 : 0;
    return Sent::sent;
}

bool TcpLink::transmit(FrameKind kind, std::span<const std::span<const std::byte>> parts) noexcept {
    std::array<iovec, most_parts> vectors{};
    std::size_t count = 1;
    std::size_t length = 0;
    assert(parts.size() + 2 <= vectors.size());
    for (const auto part : parts) {
        if (!part.empty()) {
            vectors[count++] = {const_cast<std::byte*>(part.data()), part.size()};
            length += part.size();
        }
    }
    FrameHeader header = consumed_;
    header.kind = kind;
    header.length = static_cast<std::uint32_t>(length);
    FrameHeaderBytes header_bytes = encode(header);
    announced_ = consumed_;
    vectors[0] = {header_bytes.data(), header_bytes.size()};
    static std::array<std::byte, 8> zeros{};
    const std::size_t total = frame_bytes(length);
    if (const std::size_t padding = total - frame_header_bytes - length; padding != 0) {
        vectors[count++] = {zeros.data(), padding};
    }
    std::size_t sent = 0;
    if (state_ == State::open && output_.empty()) {
        msghdr message{};
        message.msg_iov = vectors.data();
        message.msg_iovlen = count;
        ssize_t result = 0;
        do {
            result = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        } while (result < 0 && errno == EINTR);
        if (result < 0 && errno != EAGAIN) {
            hang_up();
            return false;
        }
        sent = result < 0 ? 0 : static_cast<std::size_t>(result);
    }
    if (sent == total) {
        return true;
    }
    // Store the rest of the frame. The flow-control windows limit the size of output_.
    try {
        for (const iovec& vector : std::span(vectors).first(count)) {
            const std::size_t skipped = std::min(sent, vector.iov_len);
            const auto* const bytes = static_cast<const std::byte*>(vector.iov_base);
            output_.append({bytes + skipped, vector.iov_len - skipped});
            sent -= skipped;
        }
    } catch (const std::bad_alloc&) {
        hang_up();
        return false;
    }
    watch_room(true);
    return true;
}

void TcpLink::flush() noexcept {
    const int error = output_.send_to(socket_.get());
    if (error != 0 && error != EAGAIN) {
        hang_up();
        return;
    }
    watch_room(error == EAGAIN);
}

void TcpLink::watch_room(bool wanted) noexcept {
    if (watches_room_ == wanted) {
        return;
    }
    watches_room_ = wanted;
    epoll_event event{};
    event.events = EPOLLIN | (wanted ? std::uint32_t{EPOLLOUT} : 0);
    event.data.fd = socket_.get();
    ::epoll_ctl(context_.epoll, EPOLL_CTL_MOD, socket_.get(), &event);
}

void TcpLink::acknowledge() noexcept {
    const bool known = announced_.requests_consumed == consumed_.requests_consumed &&
                       announced_.bytes_consumed == consumed_.bytes_consumed;
    // If output_ is not empty, the socket buffer is full, and a credit frame cannot be sent now.
    if (state_ == State::open && !known && output_.empty()) {
        static_cast<void>(transmit(FrameKind::credit, {}));
    }
}

bool TcpLink::delivers() noexcept {
    if (state_ != State::open) {
        return false;
    }
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
        return false;
    }
    // If the other process is stopped, its kernel still acknowledges TCP segments. If a cable is
    // unplugged, segments are not acknowledged, and the retransmission timer expires.
    return info.tcpi_unacked == 0 || info.tcpi_retransmits == 0;
}

bool TcpLink::receive() noexcept {
    if (input_.empty()) {
        try {
            input_.resize(input_bytes / sizeof(std::uint64_t));
        } catch (const std::bad_alloc&) {
            hang_up();
            return false;
        }
    }
    auto* const bytes = reinterpret_cast<std::byte*>(input_.data());
    if (input_begin_ != 0) {
        std::memmove(bytes, bytes + input_begin_, input_end_ - input_begin_);
        input_end_ -= input_begin_;
        input_begin_ = 0;
    }
    ssize_t got = 0;
    do {
        got = ::recv(socket_.get(), bytes + input_end_, input_bytes - input_end_, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) {
        return false;
    }
    if (got <= 0) {
        end_of_input_ = true;
        hang_up();
        return false;
    }
    input_end_ += static_cast<std::size_t>(got);
    return true;
}

bool TcpLink::next_frame(FrameHeader& header, std::span<const std::byte>& record) noexcept {
    const std::size_t available = input_end_ - input_begin_;
    if (available < frame_header_bytes) {
        return false;
    }
    const auto* const bytes = reinterpret_cast<const std::byte*>(input_.data()) + input_begin_;
    const auto decoded =
        decode(std::span<const std::byte, frame_header_bytes>(bytes, frame_header_bytes));
    if (!decoded) {
        fail(
            "the process at the other end sent an invalid frame; install the same softverbs on all "
            "hosts");
        return false;
    }
    if (available < frame_bytes(decoded->length)) {
        return false;
    }
    header = *decoded;
    record = {bytes + frame_header_bytes, header.length};
    input_begin_ += frame_bytes(header.length);
    if (!account(header)) {
        fail(
            "the process at the other end violated the network protocol; install the same "
            "softverbs on all hosts");
        return false;
    }
    return true;
}

bool TcpLink::account(const FrameHeader& header) noexcept {
    const std::uint32_t requests =
        header.requests_consumed - static_cast<std::uint32_t>(requests_taken_);
    if (requests > requests_sent_ - requests_taken_) {
        return false;
    }
    requests_taken_ += requests;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        const std::uint32_t bytes = header.bytes_consumed[lane] - bytes_taken_[lane];
        if (bytes > outstanding_[lane]) {
            return false;
        }
        outstanding_[lane] -= bytes;
        bytes_taken_[lane] = header.bytes_consumed[lane];
    }
    if (header.kind == FrameKind::credit) {
        return true;
    }
    // Reject a frame that exceeds the flow-control window. Otherwise held_ could grow without
    // limit.
    const std::size_t at =
        index(header.kind == FrameKind::request ? Lane::requests : Lane::responses);
    bytes_received_[at] += frame_bytes(header.length);
    return bytes_received_[at] - consumed_.bytes_consumed[at] <= window_bytes;
}

void TcpLink::consumed(Lane lane, std::size_t length) noexcept {
    const std::size_t at = index(lane);
    consumed_.bytes_consumed[at] += frame_bytes(length);
    consumed_.requests_consumed += lane == Lane::requests ? 1 : 0;
    ++context_.deliveries;
    if (consumed_.bytes_consumed[at] - announced_.bytes_consumed[at] >= announced_after) {
        static_cast<void>(transmit(FrameKind::credit, {}));
    }
}

bool TcpLink::deliver_request(Handler& handler, std::span<const std::byte> record) {
    if (held_.empty() && handler.on_request(*this, record)) {
        consumed(Lane::requests, record.size());
        return true;
    }
    if (held_.empty()) {
        refused_at_ = context_.deliveries;
    }
    // Copy the request, so that responses behind it in the buffer can be delivered. The
    // flow-control window limits the number of copies.
    held_lengths_.push_back(record.size());
    held_.emplace_back((record.size() + 7) / 8);
    std::memcpy(held_.back().data(), record.data(), record.size());
    return false;
}

unsigned TcpLink::deliver_held(Handler& handler, unsigned budget) {
    unsigned done = 0;
    while (done < budget && !held_.empty() && state_ != State::over) {
        const std::span<const std::byte> record{
            reinterpret_cast<const std::byte*>(held_.front().data()), held_lengths_.front()};
        if (!handler.on_request(*this, record)) {
            refused_at_ = context_.deliveries;
            break;
        }
        consumed(Lane::requests, record.size());
        held_.pop_front();
        held_lengths_.pop_front();
        ++done;
    }
    return done;
}

unsigned TcpLink::progress(Handler& handler, unsigned budget) {
    if (state_ == State::connecting || state_ == State::over) {
        return 0;
    }
    if (starved_[0] || starved_[1]) {
        report_room(handler);
    }
    unsigned done = deliver_held(handler, budget);
    // Count all frames, including those without a delivered record. Otherwise a peer that sends
    // only such frames could keep this function from returning.
    unsigned frames = done;
    FrameHeader header;
    std::span<const std::byte> record;
    bool drained = false;
    while (frames < budget && state_ != State::over) {
        if (!next_frame(header, record)) {
            // Even if a send has failed, continue to receive: the socket may contain bytes that the
            // other process sent before.
            if (end_of_input_ || !receive()) {
                drained = true;
                break;
            }
            continue;
        }
        ++frames;
        switch (header.kind) {
            case FrameKind::request:
                done += deliver_request(handler, record) ? 1 : 0;
                break;
            case FrameKind::response:
                ++done;
                handler.on_response(*this, record);
                consumed(Lane::responses, record.size());
                break;
            case FrameKind::credit:
                break;
        }
        if (starved_[0] || starved_[1]) {
            report_room(handler);
        }
    }
    if (context_.armed && done != 0) {
        // Send a credit frame now, because the agent thread sleeps and may not send one soon.
        acknowledge();
    }
    if (state_ == State::closing && held_.empty() && drained) {
        state_ = State::over;
    }
    return done;
}

void TcpLink::report_room(Handler& handler) {
    bool found = false;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        if (starved_[lane] && outstanding_[lane] + wanted_[lane] <= window_bytes) {
            starved_[lane] = false;
            found = true;
        }
    }
    if (found) {
        ++context_.deliveries;
        handler.on_room(*this);
    }
}

bool TcpLink::pending() const noexcept {
    if (state_ == State::over || state_ == State::closing) {
        return true;
    }
    if (!held_.empty() && refused_at_ != context_.deliveries) {
        return true;
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        if (starved_[lane] && outstanding_[lane] + wanted_[lane] <= window_bytes) {
            return true;
        }
    }
    const std::size_t available = input_end_ - input_begin_;
    if (available < frame_header_bytes) {
        return false;
    }
    const auto* const bytes = reinterpret_cast<const std::byte*>(input_.data()) + input_begin_;
    const auto header =
        decode(std::span<const std::byte, frame_header_bytes>(bytes, frame_header_bytes));
    return !header || available >= frame_bytes(header->length);
}

void TcpLink::service() {
    if (state_ == State::connecting) {
        int error = 0;
        socklen_t size = sizeof error;
        if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
            // The connection could not be established, for example because no process listens on
            // the port. The records that were sent are lost, like packets on a wire.
            state_ = State::over;
            return;
        }
        switch (handshake_->advance(socket_.get())) {
            case TcpHandshake::Progress::waiting:
                watch_room(handshake_->sends());
                return;
            case TcpHandshake::Progress::failed:
                fail(handshake_->failure());
                return;
            case TcpHandshake::Progress::done:
                handshake_.reset();
                state_ = State::open;
                break;
        }
    }
    if (state_ == State::open) {
        flush();
    }
}

void TcpLink::hang_up() noexcept {
    if (open()) {
        state_ = State::closing;
        starved_ = {};
        // The handler may have rejected a request because this connection had no room for the
        // response. Deliver such a request again: has_room() returns true for a closed connection.
        ++context_.deliveries;
        stop_watching(context_.epoll, socket_.get());
    }
}

void TcpLink::fail(std::string why) {
    failure_ = std::move(why);
    state_ = State::over;
}

void TcpLink::shut_down() noexcept {
    if (state_ == State::open) {
        flush();
    }
    stop_watching(context_.epoll, socket_.get());
    ::shutdown(socket_.get(), SHUT_WR);
    // Read the bytes that have arrived. If close(2) is called while unread bytes exist, TCP sends a
    // reset, and the other host discards data that its process has not read yet. Read at most
    // input_bytes, because the other host may continue to send.
    std::array<std::byte, 4096> unread{};
    for (std::size_t left = input_bytes; left > 0; left -= unread.size()) {
        if (::recv(socket_.get(), unread.data(), unread.size(), MSG_DONTWAIT) <= 0) {
            return;
        }
    }
}

} // namespace softverbs::fabric
