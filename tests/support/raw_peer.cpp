// SPDX-License-Identifier: BSD-3-Clause
#include "raw_peer.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "waiting.hpp"

namespace rdmabuf::testing {
namespace {

void check(bool done, const char* function) {
    if (!done) {
        throw std::system_error(errno, std::system_category(), function);
    }
}

UniqueFd make_socket() {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    check(static_cast<bool>(socket), "socket");
    return socket;
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

void limit_waits(const UniqueFd& socket) {
    const timeval limit{.tv_sec = time_limit.count(), .tv_usec = 0};
    for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
        check(::setsockopt(socket.get(), SOL_SOCKET, option, &limit, sizeof limit) == 0,
              "setsockopt");
    }
}

} // namespace

RawPeer::RawPeer(UniqueFd socket) : socket_(std::move(socket)) {
    limit_waits(socket_);
}

RawPeer RawPeer::connect(std::uint16_t port) {
    UniqueFd socket = make_socket();
    const sockaddr_in address = loopback(port);
    check(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
          "connect");
    return RawPeer(std::move(socket));
}

void RawPeer::send(std::span<const std::byte> bytes) const {
    // If the other end has closed the connection, the test sees this at the other end.
    static_cast<void>(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

void RawPeer::send(std::string_view text) const {
    send(std::as_bytes(std::span(text)));
}

std::vector<std::byte> RawPeer::receive(std::size_t size) const {
    std::vector<std::byte> bytes(size);
    std::size_t received = 0;
    while (received < size) {
        const ssize_t more = ::recv(socket_.get(), bytes.data() + received, size - received, 0);
        check(more >= 0 || errno == ECONNRESET, "recv");
        if (more <= 0) {
            break;
        }
        received += static_cast<std::size_t>(more);
    }
    bytes.resize(received);
    return bytes;
}

std::size_t RawPeer::available() const {
    std::array<std::byte, 1024> bytes{};
    const ssize_t count =
        ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    return static_cast<std::size_t>(std::max<ssize_t>(count, 0));
}

void RawPeer::reset() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    check(::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0,
          "setsockopt");
    close();
}

RawListener::RawListener() : socket_(make_socket()) {
    limit_waits(socket_);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    check(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
    check(::listen(socket_.get(), 16) == 0, "listen");
    check(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0,
          "getsockname");
    port_ = ntohs(address.sin_port);
}

RawPeer RawListener::accept() const {
    UniqueFd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    check(static_cast<bool>(socket), "accept4");
    return RawPeer(std::move(socket));
}

std::vector<std::byte> good_greeting() {
    return {std::byte{'R'}, std::byte{'D'}, std::byte{'B'},
            std::byte{'S'}, std::byte{1},   std::byte{0}};
}

std::vector<std::byte> frame(std::uint8_t kind, std::string_view payload) {
    std::vector<std::byte> bytes;
    for (unsigned shift = 0; shift < 32; shift += 8) {
        bytes.push_back(static_cast<std::byte>(payload.size() >> shift & 0xffU));
    }
    bytes.push_back(static_cast<std::byte>(kind));
    const auto payload_bytes = std::as_bytes(std::span(payload));
    bytes.insert(bytes.end(), payload_bytes.begin(), payload_bytes.end());
    return bytes;
}

} // namespace rdmabuf::testing
