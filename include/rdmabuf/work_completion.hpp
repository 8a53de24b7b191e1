// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// A completion, which is the unchanged ibv_wc of the provider. wr_id, status, vendor_err and
/// qp_num are always valid. The other members are only valid if status is IBV_WC_SUCCESS; imm_data
/// is only valid if wc_flags also has IBV_WC_WITH_IMM, and is in network byte order: immediate()
/// converts it. ibv_poll_cq(3).
using WorkCompletion = ibv_wc;

[[nodiscard]] inline bool succeeded(const WorkCompletion& completion) noexcept {
    return completion.status == IBV_WC_SUCCESS;
}

/// Returns the immediate data of @p completion in host byte order, as the functions that post it
/// take it. The result is valid only if the completion succeeded and wc_flags has IBV_WC_WITH_IMM.
/// See CompletionBatch::immediate() for a batch.
[[nodiscard]] inline std::uint32_t immediate(const WorkCompletion& completion) noexcept {
    return be32toh(completion.imm_data);
}

/// Returns the usual cause of a failed completion with @p status. The text is empty for success,
/// and for a status whose name is sufficient. ibv_poll_cq(3), and section 11.6.2 of the InfiniBand
/// specification.
[[nodiscard]] RDMABUF_EXPORT const char* completion_hint(ibv_wc_status status) noexcept;

/// Returns a text such as "wr_id 7 on QP 17: remote access error (vendor error 0x88): hint". The
/// function allocates memory, so do not call it on the data path.
[[nodiscard]] RDMABUF_EXPORT std::string describe(const WorkCompletion& completion);

} // namespace rdmabuf
