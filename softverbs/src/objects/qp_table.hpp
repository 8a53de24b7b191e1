// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace softverbs {

struct Qp;

/// A queue pair number has 24 bits. The upper 10 bits are the slot of the process that owns the
/// queue pair: its index among the softverbs processes of this host that have the same rendezvous
/// directory. The lower 14 bits are the index of the queue pair in that process. Therefore queue
/// pair numbers are unique among these processes.
inline constexpr unsigned qp_index_bits = 14;
inline constexpr unsigned qp_slot_bits = 10;
/// With the device profile efa, a queue pair number has 16 bits, as on EFA: 8 bits for the slot of
/// the process, and 8 bits for the index of the queue pair. Programs store these numbers in 16
/// bits.
inline constexpr unsigned short_index_bits = 8;
inline constexpr unsigned short_slot_bits = 8;
/// Whether queue pair numbers have 16 bits. The device profile sets this. All processes with the
/// same rendezvous directory, through which they find each other, must use the same size of queue
/// pair numbers.
inline bool has_short_qp_numbers = false;

[[nodiscard]] inline unsigned index_bits() noexcept {
    return has_short_qp_numbers ? short_index_bits : qp_index_bits;
}
[[nodiscard]] inline unsigned slot_bits() noexcept {
    return has_short_qp_numbers ? short_slot_bits : qp_slot_bits;
}
[[nodiscard]] inline unsigned slot_of(std::uint32_t qp_number) noexcept {
    return qp_number >> index_bits();
}

/// The InfiniBand specification reserves the queue pair numbers 0 and 1 (management) and 0xffffff
/// (multicast). Therefore no process uses the indices 0, 1 and 0x3fff, which are the lower 14 bits
/// of these numbers.
inline constexpr std::uint32_t first_qp_index = 2;
inline constexpr std::uint32_t qp_index_limit = (1U << qp_index_bits) - 1;
inline constexpr int max_queue_pairs = static_cast<int>(qp_index_limit - first_qp_index);
inline constexpr std::uint32_t short_index_limit = (1U << short_index_bits) - 1;
inline constexpr int max_short_queue_pairs = static_cast<int>(short_index_limit - first_qp_index);

/// The queue pairs of this process, indexed by the lower bits of their queue pair numbers. The
/// number of a destroyed queue pair is reused as late as possible.
class QpTable {
  public:
    /// Adds a queue pair. @p slot is the slot of this process, which is a part of the queue pair
    /// number. Returns the new queue pair number, or 0 if all numbers are in use or @p slot is too
    /// large.
    [[nodiscard]] std::uint32_t insert(Qp& qp, unsigned slot);
    void erase(std::uint32_t number);
    /// Returns the queue pair of this process with this number, or null. Defined in queue_pair.hpp.
    [[nodiscard]] inline Qp* find(std::uint32_t number) const noexcept;
    [[nodiscard]] const std::vector<Qp*>& all() const noexcept { return qps_; }

  private:
    std::vector<Qp*> qps_ = std::vector<Qp*>(first_qp_index);
    std::deque<std::uint32_t> free_;
};

} // namespace softverbs
