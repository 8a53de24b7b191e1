// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fabric/mapping.hpp"
#include "fabric/node.hpp"
#include "fabric/ring.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Two cache lines of 64 bytes, because some processors prefetch them in pairs.
inline constexpr std::size_t line_bytes = 128;

/// The flags and counters of one direction of a connection, in shared memory. Their initial value
/// is 0. Each group of cache lines is written by one side only, with one exception: the side that
/// rings a doorbell also clears the flag that requested the doorbell.
struct Direction {
    // Written by the producer.
    /// 1: the producer waits for room in the lane. When the consumer frees some, it must ring the
    /// doorbell of the producer.
    alignas(line_bytes) std::atomic<std::uint32_t> blocked[lanes];
    /// Number of calls of Connection::withdraw() by the producer for each lane.
    std::atomic<std::uint32_t> withdrawn[lanes];
    /// 1 while the producer writes into memory that the consumer has granted.
    std::atomic<std::uint32_t> writing;

    // Written by the consumer: number of bytes that were consumed in each lane.
    alignas(line_bytes) std::atomic<std::uint64_t> head[lanes];
    /// The number of requests that the consumer has processed.
    std::atomic<std::uint64_t> taken;

    // Written by the consumer, but rarely. 1: the consumer sleeps and needs a doorbell. The
    // producer reads this flag after each record, so it is not in the cache lines of the consumer's
    // indices.
    alignas(line_bytes) std::atomic<std::uint32_t> sleeping;
    /// A PullMethod: how the consumer can read the producer's private memory.
    std::atomic<std::uint32_t> pull;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(Direction) == 3 * line_bytes);

/// A WriteGrant in shared memory. The producer of the direction is the writer; the consumer owns
/// the granted memory. The consumer changes the other members only after it has set usable to 0 and
/// then seen Direction::writing equal to 0.
struct GrantSlot {
    std::atomic<std::uint64_t> usable; // 1, otherwise 0
    std::atomic<std::uint64_t> writer;
    std::atomic<std::uint64_t> key;
    std::atomic<std::uint64_t> first;
    std::atomic<std::uint64_t> length;
    std::atomic<std::uint64_t> address;
};
inline constexpr std::size_t grant_slots = 32;
using GrantTable = std::array<GrantSlot, grant_slots>;

/// Size of each ring in bytes, indexed by Lane.
using RingSizes = std::array<std::size_t, lanes>;

/// Whether the sizes are valid: powers of two from 4 KiB to 64 MiB.
[[nodiscard]] bool valid(const RingSizes& sizes) noexcept;
/// The maximum length of a record: one that always fits into an empty ring.
[[nodiscard]] std::size_t longest_record(const RingSizes& sizes) noexcept;

/// The shared memory of a connection. It contains, in this order, one Direction for each direction,
/// the grant tables and the rings.
class LinkMemory {
  public:
    /// The connector created the connection. Direction 0 leads from the connector to the acceptor.
    enum class Side : unsigned { connector, acceptor };

    LinkMemory() = default;
    /// Creates the memory. The connector calls it and sends the descriptor @p fd to the acceptor.
    /// Returns an empty object and sets errno (EMFILE, ENOMEM) on failure.
    [[nodiscard]] static LinkMemory make(const RingSizes& sizes, UniqueFd& fd) noexcept;
    /// Maps the memory that a connector sent. Returns an empty object and sets errno on failure:
    /// EINVAL (not a sealed memfd of the right size), ENOMEM.
    [[nodiscard]] static LinkMemory accept(int fd, const RingSizes& sizes) noexcept;

    explicit operator bool() const noexcept { return static_cast<bool>(mapping_); }
    [[nodiscard]] const RingSizes& sizes() const noexcept { return sizes_; }
    /// The direction in which @p side receives.
    [[nodiscard]] Direction& incoming(Side side) const noexcept;
    /// The direction in which @p side sends.
    [[nodiscard]] Direction& outgoing(Side side) const noexcept;
    /// Returns the grants that @p side has given to the other side.
    [[nodiscard]] GrantTable& grants_by(Side side) const noexcept;
    /// Returns the grants that the other side has given to @p side.
    [[nodiscard]] GrantTable& grants_to(Side side) const noexcept;
    [[nodiscard]] RingMemory incoming_ring(Side side, Lane lane) const noexcept;
    [[nodiscard]] RingMemory outgoing_ring(Side side, Lane lane) const noexcept;

  private:
    [[nodiscard]] Direction& direction(unsigned number) const noexcept;
    [[nodiscard]] RingMemory ring(unsigned number, Lane lane) const noexcept;

    Mapping mapping_;
    RingSizes sizes_{};
};

} // namespace softverbs::fabric
