// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <string_view>

#include "objects/queue_pair.hpp"

namespace softverbs {

// What ibv_post_send() and ibv_wr_*() have in common.

/// Keeps others from posting; in queue pairs that have no ibv_wr_*, Process::lock is enough.
[[nodiscard]] inline std::unique_lock<std::mutex> lock_batch(Qp& qp) {
    return qp.extended ? std::unique_lock(qp.batch_lock) : std::unique_lock<std::mutex>();
}

/// Gives the send queue its memory: 0, or ENOMEM. With Process::lock held.
[[nodiscard]] int allocate_sends(Qp& qp) noexcept;
/// And the memory for inline data.
[[nodiscard]] int allocate_inline(Qp& qp) noexcept;

/// Whether a verb can post to the send queue now: 0, or EIO (the device is dead), EINVAL (not
/// connected), or the fault that was asked for.
[[nodiscard]] int check_sendable(const Qp& qp, std::string_view verb);
/// Whether its kind of queue pair can do this.
[[nodiscard]] bool has_opcode(const Qp& qp, ibv_wr_opcode opcode) noexcept;
[[nodiscard]] bool can_be_inline(ibv_wr_opcode opcode) noexcept;

/// Gives a datagram its destination: 0, or EINVAL.
[[nodiscard]] int set_destination(const Qp& qp, SendRequest& request, ibv_ah* ah,
                                  std::uint32_t remote_qpn, std::uint32_t remote_qkey) noexcept;

/// After requests were added: they are sent, or flushed when the queue is in error.
void added(Qp& qp);

} // namespace softverbs
