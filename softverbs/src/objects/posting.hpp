// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>

#include "objects/copy_bytes.hpp"
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
/// Returns the operations (IBV_QP_EX_WITH_*) that can be posted to queue pairs of this type.
[[nodiscard]] std::uint64_t supported_ops(const Device& device, ibv_qp_type type) noexcept;
/// Returns whether ibv_post_send() can post requests with this opcode to the queue pair.
[[nodiscard]] bool has_opcode(const Qp& qp, ibv_wr_opcode opcode) noexcept;
[[nodiscard]] bool can_be_inline(const Qp& qp, ibv_wr_opcode opcode) noexcept;
/// Returns whether the flags of a send request are valid. With the device profile efa, as in
/// libefa, all requests must be signaled.
[[nodiscard]] bool has_valid_flags(const Qp& qp, unsigned flags) noexcept;

/// Sets the address handle, queue pair number and Q_Key of a datagram. Returns 0 or EINVAL.
[[nodiscard]] int set_destination(const Qp& qp, SendRequest& request, ibv_ah* ah,
                                  std::uint32_t remote_qpn, std::uint32_t remote_qkey) noexcept;

/// Sets the members of a request that binds a type 2 window. Returns 0 or an errno: EINVAL (there
/// is no window, or it has another type), EOPNOTSUPP (see can_bind()).
[[nodiscard]] int set_bind(const Qp& qp, SendRequest& request, ibv_mw* mw, std::uint32_t rkey,
                           const ibv_mw_bind_info& info);

/// Sets the scatter/gather list of the send request at @p position. The caller must have checked
/// the number of entries.
void set_entries(Qp& qp, std::uint64_t position, std::span<const ibv_sge> entries) noexcept;

/// Copies the inline data of the send request at @p position. The caller must have called
/// allocate_inline(). Returns 0, or EINVAL if the data is too long or cannot be inline.
/// @param buffers  of the type ibv_sge or ibv_data_buf
template <class Buffer>
[[nodiscard]] int set_inline_data(Qp& qp, std::uint64_t position,
                                  std::span<const Buffer> buffers) noexcept {
    SendRequest& request = qp.sends[position];
    std::uint64_t length = 0;
    for (const Buffer& buffer : buffers) {
        // Limit each length before the addition, so that the sum cannot overflow.
        length += std::min<std::uint64_t>(buffer.length, max_inline + 1);
    }
    if (length > qp.init.cap.max_inline_data || !can_be_inline(qp, request.opcode)) {
        return EINVAL;
    }
    request.entries = 0;
    request.is_inline = true;
    request.length = length;
    std::byte* to = qp.inline_data(position);
    for (const Buffer& buffer : buffers) {
        // Ignore buffers of length 0, because their address may be invalid.
        if (buffer.length != 0) {
            copy_bytes(to, reinterpret_cast<const std::byte*>(buffer.addr), buffer.length);
            to += buffer.length;
        }
    }
    return 0;
}

/// Must be called after requests were added to the send queue. Sends the requests in the state RTS,
/// and flushes them in the states ERR and SQE. In the state SQD, the requests wait.
void added(Qp& qp);

} // namespace softverbs
