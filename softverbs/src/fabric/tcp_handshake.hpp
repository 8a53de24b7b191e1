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
/// secret before any record is read. The connector proves it first, so that the acceptor creates no
/// link for an unknown peer.
///
///     connector                           acceptor
///     hello      version, nonce     ->
///                                   <-    challenge  version, nonce
///     proof      identity, HMAC     ->
///                                   <-    welcome    identity, HMAC
///
/// Each HMAC covers all messages before it and the kind of its own message. Therefore a message can
/// neither be replayed nor reflected to its sender. The records that follow are neither encrypted
/// nor authenticated.
class TcpHandshake {
  public:
    enum class Side : std::uint8_t { connector, acceptor };
    enum class Progress : std::uint8_t {
        /// The handshake is incomplete; call advance() again when the socket is ready.
        waiting,
        done,
        /// failure() returns the reason. The caller must close the connection.
        failed,
    };

    /// @param secret     must outlive this object
    /// @param own_slot   the slot of this process
    /// @param peer_slot  for a connector: the slot of the process to reach
    TcpHandshake(Side side, std::span<const std::byte> secret, const Route& route,
                 std::uint32_t own_slot, std::uint32_t peer_slot = 0) noexcept;
    TcpHandshake(const TcpHandshake&) = delete;
    TcpHandshake& operator=(const TcpHandshake&) = delete;
    ~TcpHandshake() = default;

    /// Continues the handshake as far as possible without blocking. It reads no bytes that follow
    /// the handshake.
    [[nodiscard]] Progress advance(int socket);

    /// Returns whether a part of the current message is unsent because the socket buffer was full.
    [[nodiscard]] bool sends() const noexcept { return !output_.empty(); }
    /// The slot of the other process, after the handshake is done.
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
    /// Computes the HMAC of a proof or welcome message.
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
    /// Number of bytes received of the current message.
    std::size_t received_ = 0;
    /// The part of the current handshake message that was not sent yet.
    std::span<const std::byte> output_;
    std::string failure_;
};

} // namespace softverbs::fabric
