// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/tcp_handshake.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "fabric/little_endian.hpp"
#include "fabric/random.hpp"

namespace softverbs::fabric {
namespace {

constexpr std::string_view magic = "softverb";
constexpr std::size_t version_at = 8;
constexpr std::size_t handshake_kind_at = 10;
constexpr std::size_t nonce_at = 16;
constexpr std::size_t nonce_bytes = 32;
// Byte offsets of the fields in "proof" and "welcome" messages.
constexpr std::size_t sender_slot_at = 16;
constexpr std::size_t receiver_slot_at = 20;
constexpr std::size_t sender_address_at = 24;
constexpr std::size_t receiver_address_at = 40;
constexpr std::size_t hmac_at = 56;
static_assert(nonce_at + nonce_bytes == TcpHandshake::opening_bytes);
static_assert(hmac_at + digest_bytes == TcpHandshake::proof_bytes);

template <class Message>
void put_address(Message& message, std::size_t offset, const HostAddress& address) noexcept {
    std::copy(address.bytes.begin(), address.bytes.end(),
              message.begin() + static_cast<std::ptrdiff_t>(offset));
}

template <class Message>
HostAddress address_in(const Message& message, std::size_t offset) noexcept {
    HostAddress address;
    std::copy_n(message.begin() + static_cast<std::ptrdiff_t>(offset), address.bytes.size(),
                address.bytes.begin());
    return address;
}

void put_header(std::span<std::byte> message, std::uint16_t kind) noexcept {
    std::memcpy(message.data(), magic.data(), magic.size());
    store_little_endian<std::uint16_t>(message, version_at, TcpHandshake::version);
    store_little_endian<std::uint16_t>(message, handshake_kind_at, kind);
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

void TcpHandshake::queue(std::span<const std::byte> message) noexcept {
    output_ = message;
}

void TcpHandshake::make_opening(Kind kind) noexcept {
    put_header(own_opening_, static_cast<std::uint16_t>(kind));
    const auto nonce = std::span(own_opening_).subspan(nonce_at, nonce_bytes);
    // The nonce must be random: otherwise an attacker could replay messages of an earlier
    // connection.
    if (!fill_random(nonce)) {
        static_cast<void>(fail("getrandom(2) returned no random numbers"));
        return;
    }
    queue(own_opening_);
}

void TcpHandshake::make_proof(Kind kind) noexcept {
    put_header(own_proof_, static_cast<std::uint16_t>(kind));
    store_little_endian<std::uint32_t>(own_proof_, sender_slot_at, own_slot_);
    store_little_endian<std::uint32_t>(own_proof_, receiver_slot_at, peer_slot_);
    put_address(own_proof_, sender_address_at, route_.local);
    put_address(own_proof_, receiver_address_at, route_.remote);
    const Digest hmac = sign(kind, own_proof_);
    std::copy(hmac.begin(), hmac.end(), own_proof_.begin() + hmac_at);
    queue(own_proof_);
}

Digest TcpHandshake::sign(Kind kind, const Proof& message) const noexcept {
    const bool connector = side_ == Side::connector;
    const std::span<const std::byte> hello = connector ? own_opening_ : peer_opening_;
    const std::span<const std::byte> challenge = connector ? peer_opening_ : own_opening_;
    const std::span<const std::byte> signed_part = std::span(message).first(hmac_at);
    const std::span<const std::byte> proof = connector ? own_proof_ : peer_proof_;
    if (kind == Kind::proof) {
        const std::array parts{hello, challenge, signed_part};
        return hmac_sha256(secret_, parts);
    }
    const std::array parts{hello, challenge, proof, signed_part};
    return hmac_sha256(secret_, parts);
}

bool TcpHandshake::check_opening(Kind kind) {
    if (std::memcmp(peer_opening_.data(), magic.data(), magic.size()) != 0) {
        return fail(
            "the program at the other end is not softverbs; SOFTVERBS_PORT must be the "
            "same on all hosts");
    }
    const auto peer_version = load_little_endian<std::uint16_t>(peer_opening_, version_at);
    if (peer_version != version) {
        return fail("the process at the other end runs softverbs with version " +
                    std::to_string(peer_version) + " of the network protocol, and this one has " +
                    std::to_string(version) + "; install the same softverbs on all hosts");
    }
    if (load_little_endian<std::uint16_t>(peer_opening_, handshake_kind_at) !=
        static_cast<std::uint16_t>(kind)) {
        return fail(
            "the process at the other end violated the network protocol; install the same "
            "softverbs on all hosts");
    }
    return true;
}

bool TcpHandshake::check_proof(Kind kind) {
    Digest hmac{};
    std::copy_n(peer_proof_.begin() + hmac_at, hmac.size(), hmac.begin());
    if (!equal_in_constant_time(hmac, sign(kind, peer_proof_))) {
        return fail(
            "the process at the other end does not know the secret; SOFTVERBS_SECRET_FILE "
            "must be the same file on all hosts");
    }
    // The HMAC is correct. Therefore the sender knows the secret, and the values in its message can
    // be trusted.
    if (load_little_endian<std::uint16_t>(peer_proof_, handshake_kind_at) !=
        static_cast<std::uint16_t>(kind)) {
        return fail(
            "the process at the other end violated the network protocol; install the same "
            "softverbs on all hosts");
    }
    const HostAddress claimed = address_in(peer_proof_, sender_address_at);
    if (claimed != route_.remote || address_in(peer_proof_, receiver_address_at) != route_.local) {
        return fail("the process at the other end claims the address " + to_string(claimed) +
                    "; addresses must not be translated (NAT) between hosts");
    }
    const auto slot = load_little_endian<std::uint32_t>(peer_proof_, sender_slot_at);
    if (load_little_endian<std::uint32_t>(peer_proof_, receiver_slot_at) != own_slot_ ||
        (side_ == Side::connector && slot != peer_slot_)) {
        return fail(
            "the process at the other end has another slot; SOFTVERBS_PORT must be the "
            "same on all hosts");
    }
    peer_slot_ = slot;
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
    if (connector && own_opening_[0] == std::byte{}) {
        make_opening(Kind::hello);
    }
    if (flush(socket) && !opening_received_ && fill(socket, peer_opening_)) {
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
        fill(socket, peer_proof_) && check_proof(connector ? Kind::welcome : Kind::proof)) {
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
