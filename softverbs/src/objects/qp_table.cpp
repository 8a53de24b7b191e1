// SPDX-License-Identifier: BSD-3-Clause
#include "objects/qp_table.hpp"

namespace softverbs {

std::uint32_t QpTable::insert(Qp& qp, unsigned slot) {
    std::uint32_t index = 0;
    // Use new indices before indices of destroyed queue pairs, because packets to a destroyed queue
    // pair may still be in flight.
    if (qps_.size() < qp_index_limit) {
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
    const std::uint32_t index = number & ((1U << qp_index_bits) - 1);
    qps_[index] = nullptr;
    free_.push_back(index);
}

} // namespace softverbs
