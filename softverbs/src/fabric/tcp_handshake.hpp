// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "fabric/host_address.hpp"
#include "fabric/sha256.hpp"

namespace softverbs::fabric {

/// The first messages of a TCP connection between two hosts. Both sides prove that they know the
/// secret before the first record is read; the connector proves it first, so that the acceptor
/// creates nothing for an unknown peer.
///
///     connector                           acceptor
///     hello      version, nonce     ->
///                                   <-    challenge  version, nonce
///     proof      identity, HMAC     ->
///                                   <-    welcome    identity, HMAC
///
/// Each HMAC covers all messages before it and the sender's role, so that no message can be
/// replayed, nor sent back to its sender. Records that follow are neither encrypted nor signed.
class TcpHandshake {
  public:
    enum class Side : std::uint8_t { connector, acceptor };
    enum class Progress : std::uint8_t {
        /// The handshake waits for the socket.
        waiting,
        done,
        /// failure() says why; the connection has to be closed.
        failed,
    };

    /// @param secret     must outlive the handshake
    /// @param own_slot   of this process
    /// @param peer_slot  of the process that a connector wants
    TcpHandshake(Side side, std::span<const std::byte> secret, const Route& route,
                 std::uint32_t own_slot, std::uint32_t peer_slot = 0) noexcept;
    TcpHandshake(const TcpHandshake&) = delete;
    TcpHandshake& operator=(const TcpHandshake&) = delete;

    /// Sends and receives what the socket takes and has, without waiting. Never reads more than the
    /// handshake itself.
    [[nodiscard]] Progress advance(int socket);

    /// Whether it waits for room in the socket.
    [[nodiscard]] bool sends() const noexcept { return !output_.empty(); }
    /// The slot of the other process, once done.
    [[nodiscard]] std::uint32_t peer_slot() const noexcept { return peer_slot_; }
    [[nodiscard]] const std::string& failure() const noexcept { return failure_; }

    // The sizes of the messages.
    static constexpr std::size_t opening_bytes = 48; // hello and challenge
    static constexpr std::size_t proof_bytes = 88;   // proof and welcome
    static constexpr std::uint16_t version = 1;

  private:
    enum class Kind : std::uint16_t { hello = 1, challenge, proof, welcome };
    using Opening = std::array<std::byte, opening_bytes>;
    using Proof = std::array<std::byte, proof_bytes>;

    void make_opening(Kind kind) noexcept;
    void make_proof(Kind kind) noexcept;
    [[nodiscard]] bool check_opening(Kind kind);
    [[nodiscard]] bool check_proof(Kind kind);
    /// The HMAC of a proof or a welcome.
    [[nodiscard]] Digest sign(Kind kind, const Proof& message) const noexcept;
    [[nodiscard]] bool flush(int socket);
    [[nodiscard]] bool fill(int socket, std::span<std::byte> message);
    [[nodiscard]] bool fail(std::string why);
    void queue(std::span<const std::byte> message) noexcept;

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
    /// Bytes of the message that is being received.
    std::size_t received_ = 0;
    /// The message that is being sent.
    std::span<const std::byte> output_;
    std::string failure_;
};

} // namespace softverbs::fabric
