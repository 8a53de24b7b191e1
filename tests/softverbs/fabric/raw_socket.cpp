// SPDX-License-Identifier: BSD-3-Clause
#include "raw_socket.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace softverbs::fabric::testing {

RawSocket::RawSocket(const Node& node)
    : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = node.rendezvous().path() + "/" + std::to_string(node.slot()) + ".sock";
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        throw std::system_error(errno, std::system_category(), "connect");
    }
}

void RawSocket::say(std::span<const std::byte> bytes, std::span<const int> descriptors) const {
    std::vector<std::byte> copy(bytes.begin(), bytes.end());
    iovec vector{.iov_base = copy.data(), .iov_len = copy.size()};
    std::vector<char> control(CMSG_SPACE(descriptors.size_bytes()));
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    if (!descriptors.empty()) {
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        cmsghdr* const first = CMSG_FIRSTHDR(&header);
        first->cmsg_level = SOL_SOCKET;
        first->cmsg_type = SCM_RIGHTS;
        first->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(first), descriptors.data(), descriptors.size_bytes());
    }
    // The node may have closed the connection. The test checks this itself.
    static_cast<void>(::sendmsg(socket_.get(), &header, MSG_NOSIGNAL));
}

bool RawSocket::closed() const {
    char byte = 0;
    const ssize_t size = ::recv(socket_.get(), &byte, sizeof byte, MSG_PEEK);
    return size == 0 || (size < 0 && errno != EAGAIN);
}

Message RawSocket::hear() const {
    ReceivedMessage letter;
    return receive(socket_.get(), letter) == Arrival::message ? letter.message : Message{};
}

Impostor::Impostor(const Node& node, unsigned slot, const RingSizes& sizes)
    : socket(node),
      memory(LinkMemory::make(sizes, file)),
      doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!memory || !doorbell) {
        throw std::system_error(errno, std::system_category(), "no rings");
    }
    hello.kind = MessageKind::hello;
    hello.number = slot;
    std::copy(sizes.begin(), sizes.end(), hello.ring_bytes.begin());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = node.rendezvous().path() + "/" + std::to_string(slot) + ".sock";
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
        ::listen(listener_.get(), 16) == 0) {
        path_ = path;
    }
}

Impostor::~Impostor() {
    if (!path_.empty()) {
        ::unlink(path_.c_str());
    }
}

} // namespace softverbs::fabric::testing
