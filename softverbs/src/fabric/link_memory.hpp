// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fabric/connection.hpp"
#include "fabric/mapping.hpp"
#include "fabric/ring.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Alignment in bytes of members that different processes write. It is two cache lines, because
/// some processors prefetch pairs of cache lines.
inline constexpr std::size_t line_bytes = 128;

/// Flags and counters for one direction of a connection, in shared memory. The initial values are
/// 0. The producer sends records in this direction, and the consumer receives them. Each group of
/// members that begins with alignas is written by only one of the two processes. The only exception
/// is a flag that requests a wakeup through the doorbell (an eventfd): the process that rings the
/// doorbell clears the flag.
struct Direction {
    // Written by the producer. For requests and for responses: 1 if a record did not fit into the
    // ring. When the consumer has then consumed records, it must wake the producer through the
    // producer's doorbell (an eventfd).
    alignas(line_bytes) std::atomic<std::uint32_t> blocked[lanes];
    /// For requests and for responses: number of calls of Connection::withdraw() by the producer. A
    /// call invalidates the memory addresses in all records that were sent before.
    std::atomic<std::uint32_t> withdrawn[lanes];
    /// Incremented before and after each direct write of the producer to memory of the consumer. An
    /// odd number means that a write is in progress.
    std::atomic<std::uint32_t> writing;

    // Written by the consumer. For requests and for responses: number of bytes that the consumer
    // has consumed since the connection was created.
    alignas(line_bytes) std::atomic<std::uint64_t> head[lanes];
    /// Number of requests that the consumer has consumed since the connection was created.
    std::atomic<std::uint64_t> taken;

    // Written by the consumer, but rarely. 1: the consumer sleeps, so the producer must wake it
    // through the consumer's doorbell (an eventfd) after the next record. The producer reads this
    // flag after each record. Therefore the flag is not in the cache line of "head", which changes
    // often.
    alignas(line_bytes) std::atomic<std::uint32_t> sleeping;
    /// Written by the consumer. A value of PullMethod: whether the consumer can read memory of the
    /// producer that is not shared.
    std::atomic<std::uint32_t> pull;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(Direction) == 3 * line_bytes);

/// A WriteGrant in shared memory: permission for the producer to write directly to memory of the
/// consumer. The consumer changes the other members only after it has set "usable" to 0 and has
/// found that no direct write is in progress (see Direction::writing).
struct GrantSlot {
    std::atomic<std::uint64_t> usable; // 1: the producer may write; 0: it may not
    std::atomic<std::uint64_t> writer;
    std::atomic<std::uint64_t> key;
    std::atomic<std::uint64_t> first;
    std::atomic<std::uint64_t> length;
    std::atomic<std::uint64_t> address;
};
inline constexpr std::size_t grant_slots = 32;
using GrantTable = std::array<GrantSlot, grant_slots>;

/// Sizes in bytes of the ring for requests and of the ring for responses. Both directions of a
/// connection have the same sizes.
using RingSizes = std::array<std::size_t, lanes>;

/// Returns whether the sizes of both rings are powers of two from 4 KiB to 64 MiB.
[[nodiscard]] bool valid(const RingSizes& sizes) noexcept;
/// Returns the maximum length in bytes of a record (a request or a response). A record of this
/// length fits into an empty ring at every position.
[[nodiscard]] std::size_t longest_record(const RingSizes& sizes) noexcept;

/// The shared memory of a connection. It contains the rings and, for each direction, the counters
/// (Direction) and the permissions for direct writes (GrantTable).
class LinkMemory {
  public:
    /// The two ends of a connection. The connector, which has created the connection, sends in
    /// direction 0. The acceptor sends in direction 1.
    enum class Side : unsigned { connector, acceptor };

    LinkMemory() = default;
    /// Creates the shared memory of a connection, and stores its file descriptor in @p fd. The
    /// connector then sends @p fd to the acceptor. On failure, returns an empty object and sets
    /// errno to EMFILE or ENOMEM.
    [[nodiscard]] static LinkMemory make(const RingSizes& sizes, UniqueFd& fd) noexcept;
    /// Maps the shared memory whose file descriptor @p fd a connector has sent. On failure, returns
    /// an empty object and sets errno to ENOMEM, or to EINVAL if @p fd is not a sealed memfd of the
    /// correct size.
    [[nodiscard]] static LinkMemory accept(int fd, const RingSizes& sizes) noexcept;

    explicit operator bool() const noexcept { return static_cast<bool>(mapping_); }
    [[nodiscard]] const RingSizes& sizes() const noexcept { return sizes_; }
    /// Returns the flags and counters of the direction in which @p side sends records.
    [[nodiscard]] Direction& outgoing(Side side) const noexcept;
    /// Returns the permissions of the process at @p side to write to memory of the other process.
    [[nodiscard]] GrantTable& grants_to(Side side) const noexcept;
    [[nodiscard]] RingMemory outgoing_ring(Side side, Lane lane) const noexcept;
    // The same for the direction in which @p side receives records.
    [[nodiscard]] Direction& incoming(Side side) const noexcept { return outgoing(peer(side)); }
    [[nodiscard]] GrantTable& grants_by(Side side) const noexcept { return grants_to(peer(side)); }
    [[nodiscard]] RingMemory incoming_ring(Side side, Lane lane) const noexcept {
        return outgoing_ring(peer(side), lane);
    }

  private:
    [[nodiscard]] static constexpr Side peer(Side side) noexcept {
        return side == Side::connector ? Side::acceptor : Side::connector;
    }

    Mapping mapping_;
    RingSizes sizes_{};
};

} // namespace softverbs::fabric
