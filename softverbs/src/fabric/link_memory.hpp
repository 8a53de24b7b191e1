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

/// Two lines: some processors fetch them in pairs.
inline constexpr std::size_t line_bytes = 128;

/// What the shared memory holds for one direction of a connection, apart from the rings' bytes. It
/// starts as zeroes. Each line has one writer, but for the flags that a bell takes back.
struct Direction {
    // Written by the producer.
    /// The producer sleeps until there is room: whoever makes some rings.
    alignas(line_bytes) std::atomic<std::uint32_t> blocked[lanes];
    /// How often the producer has withdrawn what it had offered to be read.
    std::atomic<std::uint32_t> withdrawn[lanes];
    /// The producer is writing to memory that the consumer has granted: 1, otherwise 0.
    std::atomic<std::uint32_t> writing;

    // Written by the consumer.
    alignas(line_bytes) std::atomic<std::uint64_t> head[lanes];
    /// Records taken out of the lane of requests.
    std::atomic<std::uint64_t> taken;

    // Written by the consumer, and rarely: the producer looks here after each record.
    alignas(line_bytes) std::atomic<std::uint32_t> sleeping;
    /// A PullMethod: whether the consumer can read the producer's private memory.
    std::atomic<std::uint32_t> pull;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(Direction) == 3 * line_bytes);

/// A WriteGrant in shared memory, for the producer of a direction. The consumer changes the other
/// members only while usable is 0 and Direction::writing was 0 after that.
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

/// Bytes of each ring, in the order of Lane.
using RingSizes = std::array<std::size_t, lanes>;

/// Whether rings can have these sizes: powers of two from 4 KiB to 64 MiB.
[[nodiscard]] bool valid(const RingSizes& sizes) noexcept;
/// The longest record for which rings of these sizes always have room once they are empty.
[[nodiscard]] std::size_t longest_record(const RingSizes& sizes) noexcept;

/// The memory that the two sides of a connection share: a Direction each way, then the rings.
class LinkMemory {
  public:
    /// The side that made the connection is 0, the other one 1: direction 0 leads from 0 to 1.
    enum class Side : unsigned { connector, acceptor };

    LinkMemory() = default;
    /// Makes memory of a connector. The descriptor goes to the acceptor. Empty, with errno (EMFILE,
    /// ENOMEM), where there is none to be had.
    [[nodiscard]] static LinkMemory make(const RingSizes& sizes, UniqueFd& fd) noexcept;
    /// Maps what a connector sent. Empty, with errno, where that is not what make() makes: EINVAL,
    /// or ENOMEM.
    [[nodiscard]] static LinkMemory accept(int fd, const RingSizes& sizes) noexcept;

    explicit operator bool() const noexcept { return static_cast<bool>(mapping_); }
    [[nodiscard]] const RingSizes& sizes() const noexcept { return sizes_; }
    /// What @p side takes its records out of.
    [[nodiscard]] Direction& incoming(Side side) const noexcept;
    /// What @p side puts its records into.
    [[nodiscard]] Direction& outgoing(Side side) const noexcept;
    /// What @p side has granted, and what was granted to it.
    [[nodiscard]] GrantTable& grants_by(Side side) const noexcept;
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
