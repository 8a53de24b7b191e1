// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/tcp_link.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "fabric/clock.hpp"
#include "fabric/event_source.hpp"

namespace softverbs::fabric {

TcpLink::TcpLink(NodeState& context, int epoll, UniqueFd socket, const Route& route, unsigned slot,
                 std::unique_ptr<TcpHandshake> handshake)
    : Connection(route),
      context_(context),
      epoll_(epoll),
      socket_(std::move(socket)),
      slot_(slot),
      state_(handshake ? State::connecting : State::open),
      handshake_(std::move(handshake)),
      handshake_deadline_(now_ns() + TcpHandshake::time_limit_ns) {
    // Watch for EPOLLOUT during the handshake, because this event reports that connect(2) has
    // completed.
    watch_room(handshake_ != nullptr);
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
    // Return true if the other process is only stopped by SIGSTOP: its kernel still acknowledges
    // data. Return false if the other host acknowledges nothing, for example because a cable is
    // unplugged: then sent data is retransmitted or, if no data is in flight, the probes that
    // set_connection_options() enables stay unanswered.
    const bool retransmits = info.tcpi_unacked > 0 && info.tcpi_retransmits > 0;
    return !retransmits && info.tcpi_probes == 0;
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
    FrameHeader header;
    return peek_header(header) &&
           (!is_valid(header) || input_end_ - input_begin_ >= frame_bytes(header.length));
}

void TcpLink::service() {
    if (state_ == State::connecting) {
        int error = 0;
        socklen_t size = sizeof error;
        if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
            // The connection could not be established, for example because no process listens on
            // the port. The requests and responses that this process has already sent on this
            // connection are lost, as if the network had dropped the packets.
            fail({}, error);
            return;
        }
        switch (handshake_->advance(socket_.get())) {
            case TcpHandshake::Progress::waiting:
                watch_room(handshake_->sends());
                return;
            case TcpHandshake::Progress::failed:
                fail(handshake_->failure(), EACCES);
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
        // Do not wait for further events of this socket. In State::closing, pending() returns true,
        // so progress() is called without an event, and calls Handler::on_request() again for
        // requests that it has rejected. It may have rejected them because this connection had no
        // room for responses; has_room() now returns true, because the connection is not open.
        stop_watching(epoll_, socket_.get());
    }
}

void TcpLink::fail(std::string why, int error) {
    failure_ = std::move(why);
    error_ = error;
    state_ = State::over;
}

void TcpLink::shut_down() noexcept {
    if (state_ == State::open) {
        flush();
    }
    stop_watching(epoll_, socket_.get());
    ::shutdown(socket_.get(), SHUT_WR);
    // Discard the bytes that have arrived. If close(2) is called while unread bytes exist, TCP
    // sends a reset, and the other host discards data that its process has not read yet. Discard at
    // most input_bytes, because the other host may continue to send.
    std::array<std::byte, 4096> unread{};
    for (std::size_t left = input_bytes; left > 0; left -= unread.size()) {
        if (::recv(socket_.get(), unread.data(), unread.size(), MSG_DONTWAIT) <= 0) {
            return;
        }
    }
}

} // namespace softverbs::fabric
