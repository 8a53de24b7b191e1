// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// A completion as the provider wrote it: nothing is copied or translated on the data path.
/// wr_id, status, vendor_err, qp_num and, where wc_flags says so, imm_data are meaningful;
/// opcode, byte_len and the rest only when status is IBV_WC_SUCCESS. ibv_poll_cq(3).
using WorkCompletion = ibv_wc;

[[nodiscard]] inline bool succeeded(const WorkCompletion& completion) noexcept {
    return completion.status == IBV_WC_SUCCESS;
}

/// What usually causes a status, and what to look at; empty for success and for statuses that say
/// everything by their name. ibv_poll_cq(3), and section 11.6.2 of the InfiniBand specification.
[[nodiscard]] RDMABUF_EXPORT const char* completion_hint(ibv_wc_status status) noexcept;

/// "wr_id 7 on QP 17: remote access error (vendor error 0x88): hint". Allocates: not for the data
/// path.
[[nodiscard]] RDMABUF_EXPORT std::string describe(const WorkCompletion& completion);

} // namespace rdmabuf
