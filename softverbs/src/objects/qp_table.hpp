// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace softverbs {

struct Qp;

/// Queue pair numbers, 24 bits: whose process it is (its slot), and which one in it. So any process
/// can be reached by a number, and no two have the same.
inline constexpr unsigned qp_index_bits = 14;
inline constexpr unsigned qp_slot_bits = 10;
[[nodiscard]] constexpr unsigned slot_of(std::uint32_t qp_number) noexcept {
    return qp_number >> qp_index_bits;
}

/// Numbers are reused late: the one free for longest is next. Index 0 is not used.
class QpTable {
  public:
    /// The number of @p qp; 0: all are in use.
    [[nodiscard]] std::uint32_t insert(Qp& qp, unsigned slot);
    void erase(std::uint32_t number);
    /// Null: there is none.
    [[nodiscard]] Qp* find(std::uint32_t number) const noexcept {
        const std::size_t index = number & ((1U << qp_index_bits) - 1);
        return index < qps_.size() ? qps_[index] : nullptr;
    }
    [[nodiscard]] const std::vector<Qp*>& all() const noexcept { return qps_; }

  private:
    std::vector<Qp*> qps_ = {nullptr};
    std::deque<std::uint32_t> free_;
};

} // namespace softverbs
