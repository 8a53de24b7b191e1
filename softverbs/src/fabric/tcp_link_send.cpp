// SPDX-License-Identifier: BSD-3-Clause
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <new>

#include "fabric/event_source.hpp"
#include "fabric/tcp_link.hpp"
#include "fabric/uncancellable.hpp"

namespace softverbs::fabric {
namespace {

/// Maximum number of buffers in one sendmsg(2): the frame header, the parts of the record, and the
/// padding.
constexpr std::size_t most_parts = 32;

} // namespace

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

Sent TcpLink::send(Lane lane, RecordParts parts) noexcept {
    if (!open()) [[unlikely]] {
        return Sent::closed;
    }
    const NoCancellation not_cancelled;
    const std::size_t length = length_of(parts);
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

bool TcpLink::transmit(FrameKind kind, RecordParts parts) noexcept {
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
    announced_ = consumed_;
    vectors[0] = {&header, sizeof header};
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
    // The socket has not accepted the whole frame. Store the rest of the frame in output_. The
    // flow-control windows limit the size of output_.
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
    watch(epoll_, socket_.get(), EventSource::network,
          EPOLLIN | (wanted ? std::uint32_t{EPOLLOUT} : 0));
}

void TcpLink::acknowledge() noexcept {
    const bool known = announced_.requests_consumed == consumed_.requests_consumed &&
                       announced_.bytes_consumed == consumed_.bytes_consumed;
    // Send a "credit" frame only if output_ is empty. Otherwise the socket is full, and the frame
    // cannot be sent now.
    if (state_ == State::open && !known && output_.empty()) {
        static_cast<void>(transmit(FrameKind::credit, {}));
    }
}

} // namespace softverbs::fabric
