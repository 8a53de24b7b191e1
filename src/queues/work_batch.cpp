// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>

#include <rdmabuf/work_batch.hpp>

namespace rdmabuf {

void WorkBatch::set_inline_data(std::span<const ibv_sge> local) noexcept {
    // A single entry is not passed as a list: for a list, the rxe provider sends no data and
    // reports success (rdma-core 44 to 60, wr_set_inline_data_list() in providers/rxe/rxe.c).
    if (local.size() == 1) {
        ibv_wr_set_inline_data(qp_, reinterpret_cast<void*>(local[0].addr), local[0].length);
        return;
    }
    // Devices support at most 32 entries (max_sge). For a list of more than 64 entries, the
    // provider is called without inline data and rejects the list.
    constexpr std::size_t max_entries = 64;
    if (local.size() > max_entries) {
        ibv_wr_set_sge_list(qp_, local.size(), local.data());
        return;
    }
    // NOLINTNEXTLINE(*-member-init): std::transform sets the elements
    std::array<ibv_data_buf, max_entries> buffers;
    std::transform(local.begin(), local.end(), buffers.begin(), [](const ibv_sge& entry) {
        return ibv_data_buf{.addr = reinterpret_cast<void*>(entry.addr), .length = entry.length};
    });
    ibv_wr_set_inline_data_list(qp_, local.size(), buffers.data());
}

} // namespace rdmabuf
