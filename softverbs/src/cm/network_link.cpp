// SPDX-License-Identifier: BSD-3-Clause
#include "cm/network_link.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fabric/epoll.hpp"
#include "fabric/system_error.hpp"

namespace softverbs::cm {

namespace {

/// Maximum number of bytes that one call of service() receives, so that one connection does not
/// delay the others.
constexpr std::size_t most_received = std::size_t{64} * 1024;

} // namespace

NetworkLink::NetworkLink(int epoll, fabric::UniqueFd socket, const fabric::Route& route,
                         std::unique_ptr<fabric::TcpHandshake> handshake)
    : epoll_(epoll), socket_(std::move(socket)), route_(route), handshake_(std::move(handshake)) {
    if (!fabric::watch(epoll_, socket_.get(), EPOLLIN | EPOLLOUT)) {
        fabric::throw_error(errno, "cannot watch a descriptor with epoll");
    }
}

void NetworkLink::close() noexcept {
    state_ = State::lost;
    fabric::stop_watching(epoll_, socket_.get());
    // Close the socket now, because this object may exist for a while after this call.
    socket_.reset();
}

void NetworkLink::shake_hands() {
    if (!connected_) {
        int error = 0;
        socklen_t size = sizeof error;
        if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
            close();
            state_ = error == ECONNREFUSED ? State::refused : State::lost;
            return;
        }
        connected_ = true;
    }
    switch (handshake_->advance(socket_.get())) {
        case fabric::TcpHandshake::Progress::waiting:
            return;
        case fabric::TcpHandshake::Progress::failed:
            close();
            state_ = State::unproven;
            return;
        case fabric::TcpHandshake::Progress::done:
            state_ = State::open;
            return;
    }
}

void NetworkLink::send(std::span<const std::byte> bytes) {
    output_.append(bytes);
    if (state_ == State::open) {
        flush();
        watch();
    }
}

void NetworkLink::flush() noexcept {
    // Ignore errors here. receive() detects a failure of the connection.
    static_cast<void>(output_.send_to(socket_.get()));
}

void NetworkLink::receive() {
    if (taken_ > 0) {
        input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(taken_));
        taken_ = 0;
    }
    while (input_.size() < most_received) {
        const std::size_t before = input_.size();
        input_.resize(most_received);
        const ssize_t got =
            ::recv(socket_.get(), input_.data() + before, most_received - before, MSG_DONTWAIT);
        const int error = errno;
        input_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        if (got > 0 || (got < 0 && error == EINTR)) {
            continue;
        }
        end_of_input_ = got == 0 || error != EAGAIN;
        return;
    }
}

void NetworkLink::service() {
    if (state_ == State::handshake) {
        shake_hands();
    }
    if (state_ == State::open) {
        flush();
        receive();
    }
    if (usable()) {
        watch();
    }
}

bool NetworkLink::take(std::span<std::byte> bytes) {
    if (input_.size() - taken_ >= bytes.size()) {
        std::copy_n(input_.begin() + static_cast<std::ptrdiff_t>(taken_), bytes.size(),
                    bytes.begin());
        taken_ += bytes.size();
        return true;
    }
    if (end_of_input_ && usable()) {
        close();
    }
    return false;
}

void NetworkLink::watch() noexcept {
    const bool room =
        state_ == State::handshake ? !connected_ || handshake_->sends() : waiting() > 0;
    epoll_event event{};
    event.events = room ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.fd = socket_.get();
    ::epoll_ctl(epoll_, EPOLL_CTL_MOD, socket_.get(), &event);
}

} // namespace softverbs::cm
