// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <string_view>

#include "objects/process.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

// Functions that are used by both ibv_post_send() and the ibv_wr_*() functions.

/// Waits until no other thread is between ibv_wr_start() and ibv_wr_complete() on this queue pair.
/// While the returned lock exists, ibv_wr_start() waits. For a queue pair without ibv_wr_*()
/// functions, returns an empty lock, because Process::lock is sufficient.
[[nodiscard]] inline std::unique_lock<std::mutex> lock_batch(Qp& qp) {
    return qp.extended ? std::unique_lock(qp.batch_lock) : std::unique_lock<std::mutex>();
}

/// Allocates the memory of the send queue, unless it is already allocated. Returns 0 or ENOMEM. The
/// caller must hold Process::lock.
[[nodiscard]] int allocate_sends(Qp& qp) noexcept;
/// Allocates the buffers for inline data of send requests, unless they are already allocated.
/// Returns 0 or ENOMEM. The caller must hold Process::lock.
[[nodiscard]] int allocate_inline(Qp& qp) noexcept;

/// Checks whether requests can be posted to the send queue. Returns 0 or an errno: EIO (the device
/// has failed), EINVAL (the queue pair is an XRC target, or its state is RESET, INIT or RTR; with
/// the device profile efa, the states ERR and SQE are also rejected), or the errno of an injected
/// fault for @p verb.
[[nodiscard]] inline int check_sendable(const Qp& qp, std::string_view verb) {
    if (const int error = enter(verb, context_of(qp.qp_base)); error != 0) [[unlikely]] {
        return error;
    }
    const ibv_qp_state state = qp.state();
    if (device_of(qp.qp_base).rules.is_efa) [[unlikely]] {
        return state == IBV_QPS_RTS || state == IBV_QPS_SQD ? 0 : EINVAL;
    }
    return qp.type() == IBV_QPT_XRC_RECV || state == IBV_QPS_RESET || state == IBV_QPS_INIT ||
                   state == IBV_QPS_RTR
               ? EINVAL
               : 0;
}
/// Returns whether the type of the queue pair supports the opcode. For an atomic, also checks that
/// the device supports atomics.
[[nodiscard]] bool has_opcode(const Qp& qp, ibv_wr_opcode opcode) noexcept;
[[nodiscard]] bool can_be_inline(const Qp& qp, ibv_wr_opcode opcode) noexcept;
/// Returns whether the flags of a send request are valid. With the device profile efa, as in
/// libefa, all requests must be signaled.
[[nodiscard]] bool has_valid_flags(const Qp& qp, unsigned flags) noexcept;

/// Sets the address handle, queue pair number and Q_Key of a datagram. Returns 0 or EINVAL.
[[nodiscard]] int set_destination(const Qp& qp, SendRequest& request, ibv_ah* ah,
                                  std::uint32_t remote_qpn, std::uint32_t remote_qkey) noexcept;

/// Must be called after requests were added to the send queue. Sends the requests in the state RTS,
/// and flushes them in the states ERR and SQE. In the state SQD, the requests wait.
void added(Qp& qp);

} // namespace softverbs
