// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/message.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "fabric/uncancellable.hpp"

namespace softverbs::fabric {
namespace {

constexpr std::uint32_t largest_errno = 4095;

/// A buffer for the file descriptors that a message carries (control data), with the alignment that
/// CMSG_FIRSTHDR requires.
struct ControlBuffer {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(message_descriptors * sizeof(int))> bytes{};
};

/// Moves the file descriptors of a received message from @p header to @p received. If there are
/// more than message_descriptors, closes the rest.
void take_descriptors(msghdr& header, ReceivedMessage& received) noexcept {
    std::size_t count = 0;
    for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
         control = CMSG_NXTHDR(&header, control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const std::size_t size = control->cmsg_len - CMSG_LEN(0);
        for (std::size_t at = 0; at + sizeof(int) <= size; at += sizeof(int)) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(control) + at, sizeof fd);
            UniqueFd owned(fd);
            if (count < message_descriptors) {
                received.descriptors[count++] = std::move(owned);
            }
        }
    }
}

/// Parses a message from another process and checks its contents. Returns no value if the protocol
/// version or the contents are invalid.
std::optional<Message> parse_message(std::span<const std::byte> bytes) noexcept {
    Message message;
    if (bytes.size() != sizeof message) {
        return std::nullopt;
    }
    std::memcpy(&message, bytes.data(), sizeof message);
    if (message.magic != message_magic || message.version != protocol_version) {
        return std::nullopt;
    }
    bool good = false;
    switch (message.kind) {
        case MessageKind::hello:
            good = valid(RingSizes{message.ring_bytes[0], message.ring_bytes[1]});
            break;
        case MessageKind::welcome:
        case MessageKind::poke:
            good = true;
            break;
        case MessageKind::share:
            good = message.number != 0 && message.length != 0;
            break;
        case MessageKind::shared:
            good = message.number != 0 && message.error <= largest_errno;
            break;
        case MessageKind::unshare:
            good = message.number != 0;
            break;
    }
    return good ? std::optional(message) : std::nullopt;
}

} // namespace

Arrival receive(int socket, ReceivedMessage& received) noexcept {
    received = ReceivedMessage{};
    // If the received message is longer than this buffer, the kernel sets MSG_TRUNC.
    std::array<std::byte, sizeof(Message)> bytes{};
    iovec vector{.iov_base = bytes.data(), .iov_len = bytes.size()};
    ControlBuffer control;
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    ssize_t size = 0;
    do {
        header.msg_control = control.bytes.data();
        header.msg_controllen = control.bytes.size();
        size = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        // recvmsg(2) returns ECONNRESET once if the other process closed the socket without reading
        // all messages. Try again, because messages of the other process may still be in the queue.
    } while (size < 0 && (errno == EINTR || errno == ECONNRESET));
    if (size < 0) {
        return errno == EAGAIN ? Arrival::nothing : Arrival::closed;
    }
    take_descriptors(header, received);
    if (size == 0) {
        return Arrival::closed;
    }
    received.truncated = (header.msg_flags & MSG_CTRUNC) != 0;
    const auto message = parse_message({bytes.data(), static_cast<std::size_t>(size)});
    if (!message || (header.msg_flags & MSG_TRUNC) != 0) {
        return Arrival::garbage;
    }
    received.message = *message;
    return Arrival::message;
}

int post(int socket, const Message& message, std::span<const int> descriptors) noexcept {
    Message copy = message;
    iovec vector{.iov_base = &copy, .iov_len = sizeof copy};
    ControlBuffer control;
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    if (!descriptors.empty()) {
        header.msg_control = control.bytes.data();
        header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr* const first = CMSG_FIRSTHDR(&header);
        first->cmsg_level = SOL_SOCKET;
        first->cmsg_type = SCM_RIGHTS;
        first->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(first), descriptors.data(), descriptors.size_bytes());
    }
    ssize_t sent = 0;
    const NoCancellation here;
    do {
        sent = ::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        return errno == ECONNRESET ? EPIPE : errno;
    }
    return 0;
}

} // namespace softverbs::fabric
