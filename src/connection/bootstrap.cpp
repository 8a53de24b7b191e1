// SPDX-License-Identifier: BSD-3-Clause
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include <rdmabuf/bootstrap.hpp>
#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>

#include "base/file_descriptor.hpp"
#include "base/text.hpp"
#include "base/wire_format.hpp"
#include "connection/tcp_socket.hpp"

namespace rdmabuf::bootstrap {

/// The type of a message. The numbers are part of the wire format and must not change.
enum class Channel::Kind : std::uint8_t {
    message = 1,
    queue_pair_address = 2,
    remote_region = 3,
    agreement = 4,
    barrier = 5,
};

namespace {

using rdmabuf::detail::Deadline;
using rdmabuf::detail::quote;
using rdmabuf::detail::Receiver;
using rdmabuf::detail::WireHeader;
using rdmabuf::detail::WireReader;
using rdmabuf::detail::WireWriter;

/// The greeting that both ends send first. The greeting has the same size in every version, so that
/// each end can report the version of the other end.
constexpr WireHeader greeting{{'R', 'D', 'B', 'S'}, 1};
constexpr std::size_t greeting_size = 6;

/// Size in bytes of the header of a message. The header has the length of the payload (32 bits) and
/// the message type (8 bits).
constexpr std::size_t frame_header_size = 5;

std::string_view as_text(std::span<const std::byte> bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] void refuse_stranger(int socket, std::span<const std::byte> heard) {
    // The error message also quotes the next bytes that the peer has sent, because they help to
    // identify the protocol of the peer.
    std::array<std::byte, 128> more{};
    std::copy(heard.begin(), heard.end(), more.begin());
    const ssize_t extra =
        ::recv(socket, more.data() + heard.size(), more.size() - heard.size(), MSG_DONTWAIT);
    const std::size_t size = heard.size() + static_cast<std::size_t>(std::max<ssize_t>(extra, 0));
    throw Error(EPROTO, "recv",
                "the other end is not an rdmabuf bootstrap; it sent " +
                    quote(as_text(std::span(more).first(size))));
}

void greet(int socket, const Deadline& deadline) {
    std::array<std::byte, greeting_size> ours{};
    WireWriter(ours, greeting);
    rdmabuf::detail::send_all(socket, ours, deadline, "its greeting");

    std::array<std::byte, greeting_size> theirs{};
    Receiver receiver(socket, deadline, "the peer's greeting");
    std::size_t heard = 0;
    while (heard < theirs.size()) {
        heard += receiver.some(std::span(theirs).subspan(heard));
        // Each byte is compared as it arrives, because a peer with another protocol may send fewer
        // bytes than a greeting has.
        const std::size_t letters = std::min(heard, greeting.kind.size());
        if (std::memcmp(theirs.data(), ours.data(), letters) != 0) {
            refuse_stranger(socket, std::span(theirs).first(heard));
        }
    }
    WireReader reader{std::span(theirs).subspan(greeting.kind.size())};
    if (const auto version = reader.get<std::uint16_t>(); version != greeting.version) {
        throw Error(EPROTONOSUPPORT, "recv",
                    "the peer uses version " + std::to_string(version) +
                        " of the bootstrap protocol, and this side uses version " +
                        std::to_string(greeting.version) +
                        ": use the same release of rdmabuf on both sides");
    }
}

[[noreturn]] void refuse_closed(const char* function) {
    throw Error(ENOTCONN, function,
                "an earlier error has ended this channel, or it was moved from: connect again");
}

/// Encodes the payload of agree(): the length of the name (16 bits), the name, the value.
std::vector<std::byte> encode_agreement(std::string_view name, std::string_view value) {
    std::vector<std::byte> payload(sizeof(std::uint16_t));
    WireWriter(payload).put(static_cast<std::uint16_t>(name.size()));
    for (const std::string_view part : {name, value}) {
        const auto bytes = std::as_bytes(std::span(part));
        payload.insert(payload.end(), bytes.begin(), bytes.end());
    }
    return payload;
}

struct Agreement {
    std::string_view name;
    std::string_view value;
};

Agreement decode_agreement(std::span<const std::byte> payload) {
    if (payload.size() >= sizeof(std::uint16_t)) {
        const std::size_t name_size = WireReader(payload).get<std::uint16_t>();
        const std::string_view rest = as_text(payload.subspan(sizeof(std::uint16_t)));
        if (name_size <= rest.size()) {
            return {rest.substr(0, name_size), rest.substr(name_size)};
        }
    }
    throw Error(EPROTO, "recv", "the peer sent a malformed agreement");
}

} // namespace

const char* Channel::describe(Kind kind) noexcept {
    switch (kind) {
        case Kind::message:
            return "a message";
        case Kind::queue_pair_address:
            return "a queue pair address";
        case Kind::remote_region:
            return "a remote region";
        case Kind::agreement:
            return "an agreement";
        case Kind::barrier:
            return "a barrier";
    }
    return "an unknown type of message";
}

namespace {

/// Connects to a listener, which may start to listen later than this call.
UniqueFd connect_to_listener(const std::string& host, std::uint16_t port,
                             const Deadline& deadline) {
    constexpr std::chrono::milliseconds between_attempts(50);
    while (true) {
        try {
            return rdmabuf::detail::tcp_connect(host, port, deadline);
        } catch (const Error& error) {
            if (error.error() != ECONNREFUSED || deadline.left().count() == 0) {
                throw;
            }
        }
        const auto left = deadline.left();
        std::this_thread::sleep_for(left.count() < 0 ? between_attempts
                                                     : std::min(left, between_attempts));
    }
}

} // namespace

Channel Channel::connect(const std::string& host, std::uint16_t port,
                         std::chrono::milliseconds timeout) {
    const Deadline deadline(timeout);
    Channel channel(connect_to_listener(host, port, deadline), timeout);
    greet(channel.socket_.get(), deadline);
    return channel;
}

void Channel::send_frame(Kind kind, std::span<const std::byte> payload) {
    if (!socket_) {
        refuse_closed("send");
    }
    std::vector<std::byte> frame(frame_header_size);
    WireWriter writer(frame);
    writer.put(static_cast<std::uint32_t>(payload.size()));
    writer.put(static_cast<std::uint8_t>(kind));
    frame.insert(frame.end(), payload.begin(), payload.end());
    try {
        rdmabuf::detail::send_all(socket_.get(), frame, Deadline(timeout_), describe(kind));
    } catch (...) {
        // The peer may have received only a part of this message, and would read the next message
        // as the rest of this message. The connection is therefore closed.
        socket_.reset();
        throw;
    }
}

std::vector<std::byte> Channel::receive_frame(Kind kind) {
    if (!socket_) {
        refuse_closed("recv");
    }
    const Deadline deadline(timeout_);
    Receiver receiver(socket_.get(), deadline, describe(kind));
    std::vector<std::byte> payload;
    Kind received{};
    try {
        std::array<std::byte, frame_header_size> header{};
        receiver.all(header);
        WireReader reader(header);
        const auto size = reader.get<std::uint32_t>();
        received = static_cast<Kind>(reader.get<std::uint8_t>());
        if (size > max_message) {
            throw Error(EPROTO, "recv",
                        "the peer announced " + std::to_string(size) +
                            " bytes; a message has up to " + std::to_string(max_message));
        }
        payload.resize(size);
        receiver.all(payload);
    } catch (...) {
        // After an error, the start of the next message is unknown. The connection is therefore
        // closed.
        socket_.reset();
        throw;
    }
    if (received != kind) {
        throw Error(EPROTO, "recv",
                    std::string("the peer sent ") + describe(received) + " where " +
                        describe(kind) +
                        " was expected: both sides must take the same steps in the same order");
    }
    return payload;
}

void Channel::send(std::span<const std::byte> message) {
    if (message.size() > max_message) {
        throw Error(EMSGSIZE, "send",
                    "a message has up to " + std::to_string(max_message) + " bytes, not " +
                        std::to_string(message.size()));
    }
    send_frame(Kind::message, message);
}

std::vector<std::byte> Channel::receive() {
    return receive_frame(Kind::message);
}

template <class Value>
Value Channel::exchange_as(Kind kind, const Value& ours) {
    send_frame(kind, ours.encode());
    const std::vector<std::byte> payload = receive_frame(kind);
    const Result<Value> theirs = Value::decode(payload);
    if (!theirs) {
        throw Error(
            theirs.error(), "recv",
            std::string("the peer's bytes are not ") + describe(kind) + ": " + theirs.reason());
    }
    return *theirs;
}

QueuePairAddress Channel::exchange(const QueuePairAddress& ours) {
    return exchange_as(Kind::queue_pair_address, ours);
}

RemoteRegion Channel::exchange(const RemoteRegion& ours) {
    return exchange_as(Kind::remote_region, ours);
}

void Channel::agree(std::string_view name, std::string_view ours) {
    if (name.size() + ours.size() > max_agreement) {
        throw Error(EMSGSIZE, "send",
                    "a name and a value to agree on can have at most " +
                        std::to_string(max_agreement) + " bytes together, not " +
                        std::to_string(name.size() + ours.size()));
    }
    send_frame(Kind::agreement, encode_agreement(name, ours));
    const std::vector<std::byte> payload = receive_frame(Kind::agreement);
    const Agreement theirs = decode_agreement(payload);
    if (theirs.name != name) {
        throw Error(EPROTO, "recv",
                    "the peer wants to agree on " + quote(theirs.name) + ", this side on " +
                        quote(name) + ": both sides must take the same steps in the same order");
    }
    if (theirs.value != ours) {
        throw Error(EPROTO, "recv",
                    "the two sides differ in " + quote(name) + ": it is " + quote(ours) +
                        " here and " + quote(theirs.value) + " at the peer");
    }
}

void Channel::barrier() {
    send_frame(Kind::barrier, {});
    const std::vector<std::byte> payload = receive_frame(Kind::barrier);
    if (!payload.empty()) {
        throw Error(EPROTO, "recv", "the peer sent a malformed barrier");
    }
}

Listener::Listener(std::uint16_t port, const std::string& host)
    : socket_(rdmabuf::detail::tcp_listen(host, port)),
      port_(rdmabuf::detail::local_port(socket_.get())) {}

Listener& Listener::operator=(Listener&& other) noexcept {
    if (this != &other) {
        stop();
        socket_ = std::move(other.socket_);
        creator_ = other.creator_;
        port_ = other.port_;
    }
    return *this;
}

void Listener::stop() noexcept {
    // While a forked child has the socket open, the kernel would accept connections even after
    // close(2), and their peers would wait for a greeting. shutdown(2) prevents this.
    if (socket_ && creator_.is_current()) {
        ::shutdown(socket_.get(), SHUT_RDWR);
    }
}

Channel Listener::accept(std::chrono::milliseconds timeout) {
    if (!socket_) {
        rdmabuf::detail::raise_closed("accept", "Listener");
    }
    const Deadline deadline(timeout);
    Channel channel(rdmabuf::detail::tcp_accept(socket_.get(), deadline), timeout);
    greet(channel.socket_.get(), deadline);
    return channel;
}

} // namespace rdmabuf::bootstrap
