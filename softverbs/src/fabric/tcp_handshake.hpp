// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "fabric/clock.hpp"
#include "fabric/host_address.hpp"
#include "fabric/sha256.hpp"

namespace softverbs::fabric {

/// The handshake of a TCP connection between hosts. Both processes prove that they know the secret,
/// before any request or response is read. The connector is the first to prove it, so that the
/// acceptor creates no TcpLink for an unknown peer.
///
///     connector                           acceptor
///     hello      version, nonce     ->
///                                   <-    challenge  version, nonce
///     proof      identity, HMAC     ->
///                                   <-    welcome    identity, HMAC
///
/// Each HMAC covers all earlier messages and the kind of its own message. Therefore an attacker can
/// neither replay a message nor send it back to its sender. The data after the handshake is
/// neither encrypted nor authenticated.
class TcpHandshake {
  public:
    enum class Side : std::uint8_t { connector, acceptor };
    enum class Progress : std::uint8_t {
        /// The handshake is not complete. advance() must be called again when the socket is ready.
        waiting,
        done,
        /// The handshake failed; failure() returns the reason. The caller must close the
        /// connection.
        failed,
    };

    /// @param secret  the secret, which must outlive this object
    /// @param own_slot  the TCP port on which this process listens, minus
    ///     NetworkSettings::first_port
    /// @param peer_slot  the same value of the other process; only for a connector
    TcpHandshake(Side side, std::span<const std::byte> secret, const Route& route,
                 std::uint32_t own_slot, std::uint32_t peer_slot = 0) noexcept;
    TcpHandshake(const TcpHandshake&) = delete;
    TcpHandshake& operator=(const TcpHandshake&) = delete;
    ~TcpHandshake() = default;

    /// Sends and receives messages of the handshake until the socket would block or the handshake
    /// ends. Does not read bytes that follow the handshake.
    [[nodiscard]] Progress advance(int socket);

    /// Returns whether a part of a handshake message could not be sent yet, because the socket was
    /// full.
    [[nodiscard]] bool sends() const noexcept { return !output_.empty(); }
    /// Returns the slot of the other process: the TCP port on which it listens, minus
    /// NetworkSettings::first_port. Valid only after the handshake is done.
    [[nodiscard]] std::uint32_t peer_slot() const noexcept { return peer_slot_; }
    [[nodiscard]] const std::string& failure() const noexcept { return failure_; }

    static constexpr std::uint16_t version = 2;
    static constexpr std::uint64_t time_limit_ns = 3 * second_ns;
    static constexpr std::size_t opening_bytes = 48; // size of Opening

  private:
    enum class Kind : std::uint16_t { hello = 1, challenge, proof, welcome };
    // The handshake messages. Numbers are little-endian.
    struct Header {
        std::array<char, 8> magic;
        std::uint16_t version;
        Kind kind;
        std::uint32_t reserved;
    };
    struct Opening { // "hello" and "challenge"
        Header header;
        std::array<std::byte, 32> nonce;
    };
    static_assert(sizeof(Opening) == opening_bytes);
    struct Proof { // "proof" and "welcome"
        Header header;
        std::uint32_t sender_slot;
        std::uint32_t receiver_slot;
        HostAddress sender;
        HostAddress receiver;
        Digest hmac;
    };
    static_assert(sizeof(Proof) == 88);

    static constexpr Header header(Kind kind) noexcept {
        return {{'s', 'o', 'f', 't', 'v', 'e', 'r', 'b'}, version, kind, 0};
    }
    void make_opening(Kind kind) noexcept;
    void make_proof(Kind kind) noexcept;
    [[nodiscard]] bool check_opening(Kind kind);
    [[nodiscard]] bool check_proof(Kind kind);
    /// Returns the HMAC for a "proof" or "welcome" message.
    [[nodiscard]] Digest sign(Kind kind, const Proof& message) const noexcept;
    [[nodiscard]] bool flush(int socket);
    [[nodiscard]] bool fill(int socket, std::span<std::byte> message);
    [[nodiscard]] bool fail(std::string why);

    Side side_;
    std::span<const std::byte> secret_;
    Route route_;
    std::uint32_t own_slot_;
    std::uint32_t peer_slot_;

    Opening own_opening_{};
    Opening peer_opening_{};
    Proof own_proof_{};
    Proof peer_proof_{};
    bool opening_received_ = false;
    bool proof_received_ = false;
    /// Number of bytes of the current incoming message that were received.
    std::size_t received_ = 0;
    /// The part of the current outgoing message that was not sent yet.
    std::span<const std::byte> output_;
    std::string failure_;
};

} // namespace softverbs::fabric
