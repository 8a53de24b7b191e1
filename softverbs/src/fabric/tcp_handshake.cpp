// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/tcp_handshake.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "fabric/random.hpp"

namespace softverbs::fabric {
namespace {

constexpr const char* protocol_violation =
    "the process at the other end violated the network protocol; install the same softverbs on all "
    "hosts";

template <class Message>
std::span<const std::byte> bytes_of_message(const Message& message) noexcept {
    return std::as_bytes(std::span(&message, 1));
}

} // namespace

TcpHandshake::TcpHandshake(Side side, std::span<const std::byte> secret, const Route& route,
                           std::uint32_t own_slot, std::uint32_t peer_slot) noexcept
    : side_(side), secret_(secret), route_(route), own_slot_(own_slot), peer_slot_(peer_slot) {}

bool TcpHandshake::fail(std::string why) {
    if (failure_.empty()) {
        failure_ = std::move(why);
    }
    return false;
}

void TcpHandshake::make_opening(Kind kind) noexcept {
    own_opening_.header = header(kind);
    // The nonce must be random: otherwise an attacker could replay messages of an earlier
    // connection.
    if (!fill_random(own_opening_.nonce)) {
        static_cast<void>(fail("getrandom(2) returned no random numbers"));
        return;
    }
    output_ = bytes_of_message(own_opening_);
}

void TcpHandshake::make_proof(Kind kind) noexcept {
    own_proof_ = {header(kind), own_slot_, peer_slot_, route_.local, route_.remote, {}};
    own_proof_.hmac = sign(kind, own_proof_);
    output_ = bytes_of_message(own_proof_);
}

Digest TcpHandshake::sign(Kind kind, const Proof& message) const noexcept {
    const bool connector = side_ == Side::connector;
    const auto hello = bytes_of_message(connector ? own_opening_ : peer_opening_);
    const auto challenge = bytes_of_message(connector ? peer_opening_ : own_opening_);
    const auto signed_part = bytes_of_message(message).first(offsetof(Proof, hmac));
    if (kind == Kind::proof) {
        const std::array parts{hello, challenge, signed_part};
        return hmac_sha256(secret_, parts);
    }
    const auto proof = bytes_of_message(connector ? own_proof_ : peer_proof_);
    const std::array parts{hello, challenge, proof, signed_part};
    return hmac_sha256(secret_, parts);
}

bool TcpHandshake::check_opening(Kind kind) {
    const Header& found = peer_opening_.header;
    if (found.magic != header(kind).magic) {
        return fail(
            "the program at the other end is not softverbs; SOFTVERBS_PORT must be the "
            "same on all hosts");
    }
    if (found.version != version) {
        return fail("the process at the other end runs softverbs with version " +
                    std::to_string(found.version) + " of the network protocol, and this one has " +
                    std::to_string(version) + "; install the same softverbs on all hosts");
    }
    return found.kind == kind || fail(protocol_violation);
}

bool TcpHandshake::check_proof(Kind kind) {
    if (!equal_in_constant_time(peer_proof_.hmac, sign(kind, peer_proof_))) {
        return fail(
            "the process at the other end does not know the secret; SOFTVERBS_SECRET_FILE "
            "must be the same file on all hosts");
    }
    // The HMAC is correct. Therefore the sender knows the secret, and the values in its message can
    // be trusted.
    if (peer_proof_.header.kind != kind) {
        return fail(protocol_violation);
    }
    if (peer_proof_.sender != route_.remote || peer_proof_.receiver != route_.local) {
        return fail("the process at the other end claims the address " +
                    to_string(peer_proof_.sender) +
                    "; addresses must not be translated (NAT) between hosts");
    }
    if (peer_proof_.receiver_slot != own_slot_ ||
        (side_ == Side::connector && peer_proof_.sender_slot != peer_slot_)) {
        return fail(
            "the process at the other end has another slot; SOFTVERBS_PORT must be the "
            "same on all hosts");
    }
    peer_slot_ = peer_proof_.sender_slot;
    return true;
}

bool TcpHandshake::flush(int socket) {
    while (!output_.empty()) {
        const ssize_t sent =
            ::send(socket, output_.data(), output_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            return errno == EAGAIN ? false : fail("the other end closed the connection");
        }
        output_ = output_.subspan(static_cast<std::size_t>(sent));
    }
    return true;
}

bool TcpHandshake::fill(int socket, std::span<std::byte> message) {
    while (received_ < message.size()) {
        const ssize_t got =
            ::recv(socket, message.data() + received_, message.size() - received_, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && errno == EAGAIN) {
            return false;
        }
        if (got <= 0) {
            // If the acceptor closes the connection after it has sent its "challenge" message, it
            // has rejected the "proof" message of this process.
            return fail(side_ == Side::connector && opening_received_
                            ? "the other host refused this process; SOFTVERBS_SECRET_FILE must "
                              "be the same file on all hosts"
                            : "the other end closed the connection during the handshake");
        }
        received_ += static_cast<std::size_t>(got);
    }
    received_ = 0;
    return true;
}

TcpHandshake::Progress TcpHandshake::advance(int socket) {
    const bool connector = side_ == Side::connector;
    if (connector && own_opening_.header.version == 0) {
        make_opening(Kind::hello);
    }
    if (flush(socket) && !opening_received_ &&
        fill(socket, std::as_writable_bytes(std::span(&peer_opening_, 1)))) {
        const bool good = check_opening(connector ? Kind::challenge : Kind::hello);
        opening_received_ = true;
        if (!connector) {
            // Send the "challenge" message even if the connector has another protocol version, so
            // that the connector can print the version of this process.
            make_opening(Kind::challenge);
        } else if (good) {
            make_proof(Kind::proof);
        }
    }
    if (flush(socket) && failure_.empty() && opening_received_ && !proof_received_ &&
        fill(socket, std::as_writable_bytes(std::span(&peer_proof_, 1))) &&
        check_proof(connector ? Kind::welcome : Kind::proof)) {
        proof_received_ = true;
        if (!connector) {
            make_proof(Kind::welcome);
        }
    }
    const bool sent = flush(socket);
    if (!failure_.empty()) {
        return Progress::failed;
    }
    return proof_received_ && sent ? Progress::done : Progress::waiting;
}

} // namespace softverbs::fabric
