// SPDX-License-Identifier: BSD-3-Clause
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "fabric/tcp_link.hpp"

namespace softverbs::fabric {
namespace {

/// When this process has consumed this number of bytes since it last sent a frame, it reports the
/// consumed bytes to the other process with a "credit" frame.
constexpr std::uint32_t announced_after = window_bytes / 4;

} // namespace

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

bool TcpLink::peek_header(FrameHeader& header) const noexcept {
    if (input_end_ - input_begin_ < sizeof header) {
        return false;
    }
    std::memcpy(&header, reinterpret_cast<const std::byte*>(input_.data()) + input_begin_,
                sizeof header);
    return true;
}

bool TcpLink::next_frame(FrameHeader& header, std::span<const std::byte>& record) noexcept {
    if (!peek_header(header)) {
        return false;
    }
    if (!is_valid(header)) {
        fail(
            "the process at the other end sent an invalid frame; install the same softverbs on all "
            "hosts");
        return false;
    }
    if (input_end_ - input_begin_ < frame_bytes(header.length)) {
        return false;
    }
    record = {reinterpret_cast<const std::byte*>(input_.data()) + input_begin_ + sizeof header,
              header.length};
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
    // Reject a frame that exceeds the flow-control window. Otherwise held_, the list of requests
    // that must be delivered later, could grow without limit.
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
    // Copy the request, which on_request() cannot process now, out of the receive buffer, so that
    // later responses in the buffer can be delivered. The flow-control window limits the number of
    // such copies.
    std::vector<std::uint64_t> words((record.size() + 7) / 8);
    std::memcpy(words.data(), record.data(), record.size());
    held_.push_back({std::move(words), record.size()});
    return false;
}

unsigned TcpLink::deliver_held(Handler& handler, unsigned budget) {
    unsigned done = 0;
    while (done < budget && !held_.empty() && state_ != State::over) {
        const HeldRequest& held = held_.front();
        const auto record = std::as_bytes(std::span(held.words)).first(held.length);
        if (!handler.on_request(*this, record)) {
            refused_at_ = context_.deliveries;
            break;
        }
        consumed(Lane::requests, record.size());
        held_.pop_front();
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
    // The budget limits all received frames, including frames from which no request or response was
    // delivered. Otherwise this function might never return if the peer sends only such frames.
    unsigned frames = done;
    FrameHeader header;
    std::span<const std::byte> record;
    bool drained = false;
    while (frames < budget && state_ != State::over) {
        if (!next_frame(header, record)) {
            // Even if sending has failed, continue to receive: the socket may contain bytes that
            // the other process sent before the failure.
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
        // Report the consumed bytes to the other process now, because the background thread of
        // softverbs sleeps and may not report them soon.
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

} // namespace softverbs::fabric
