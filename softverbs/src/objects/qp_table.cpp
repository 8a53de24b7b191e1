// SPDX-License-Identifier: BSD-3-Clause
#include "objects/qp_table.hpp"

#include <algorithm>

namespace softverbs {

std::uint32_t QpTable::insert(Qp& qp, unsigned slot) {
    const std::uint32_t limit = has_short_qp_numbers ? short_index_limit : qp_index_limit;
    std::uint32_t index = 0;
    if (slot >> slot_bits() != 0) {
        return 0; // the process obtained its slot while queue pair numbers had 24 bits
    }
    // Use new indices before indices of destroyed queue pairs, because packets to a destroyed queue
    // pair may still be in flight.
    if (qps_.size() < limit) {
        index = static_cast<std::uint32_t>(qps_.size());
        qps_.push_back(&qp);
    } else {
        const auto free =
            std::ranges::find_if(free_, [limit](std::uint32_t one) { return one < limit; });
        if (free == free_.end()) {
            return 0;
        }
        index = *free;
        free_.erase(free);
        qps_[index] = &qp;
    }
    return slot << index_bits() | index;
}

void QpTable::erase(std::uint32_t number) {
    const std::uint32_t index = number & ((1U << index_bits()) - 1);
    qps_[index] = nullptr;
    free_.push_back(index);
}

} // namespace softverbs
