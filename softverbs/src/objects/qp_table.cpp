// SPDX-License-Identifier: BSD-3-Clause
#include "objects/qp_table.hpp"

namespace softverbs {

namespace {

constexpr std::size_t max_indices = std::size_t{1} << qp_index_bits;

} // namespace

std::uint32_t QpTable::insert(Qp& qp, unsigned slot) {
    std::uint32_t index = 0;
    // New numbers come first: one that was used could still be meant by a packet under way.
    if (qps_.size() < max_indices) {
        index = static_cast<std::uint32_t>(qps_.size());
        qps_.push_back(&qp);
    } else if (!free_.empty()) {
        index = free_.front();
        free_.pop_front();
        qps_[index] = &qp;
    } else {
        return 0;
    }
    return slot << qp_index_bits | index;
}

void QpTable::erase(std::uint32_t number) {
    const std::uint32_t index = number & (max_indices - 1);
    qps_[index] = nullptr;
    free_.push_back(index);
}

} // namespace softverbs
