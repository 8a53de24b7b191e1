// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmabuf {

/// The size of a send queue for a number of outstanding requests. SendList::size_needed() computes
/// the size for a list. The first three members have the same names and meanings as in
/// QueuePairOptions:
///
///     const SendQueueSize size = 4 * list.size_needed(); // up to 4 copies of the list outstanding
///     options.max_send_wr = size.max_send_wr;
///     options.max_send_sge = size.max_send_sge;
///     options.max_inline_data = size.max_inline_data;
///
/// The rules, which also hold for WorkBatch and QueuePair::post_*():
///   - Each request uses one entry of the send queue, whatever its number of scatter-gather entries
///     or inline bytes.
///   - An entry is free again when a completion of its request, or of a later request of the same
///     queue pair, has been polled from the completion queue. Unsignaled requests generate no
///     completion. So at least one of every max_send_wr consecutive requests must be signaled.
///   - A completion queue needs one entry for each outstanding request of its queue pairs, signaled
///     or not, because every request generates a completion when the queue pair fails.
///   - The device may create a larger queue. QueuePair::attributes(IBV_QP_CAP).cap has its size.
struct SendQueueSize {
    /// The number of requests.
    std::uint32_t max_send_wr = 0;
    /// The maximum number of scatter-gather entries of a request. Inline data also counts, because
    /// each range of inline data is one entry.
    std::uint32_t max_send_sge = 0;
    /// The maximum number of inline bytes of a request.
    std::uint32_t max_inline_data = 0;
    /// The number of signaled requests, which is the number of completions if all requests succeed.
    /// If this number is 0, the entries of the requests become free only after a later signaled
    /// request has completed.
    std::uint32_t signaled = 0;

    /// Returns the size of a send queue that has room for the requests of both @p a and @p b.
    [[nodiscard]] friend constexpr SendQueueSize operator+(const SendQueueSize& a,
                                                           const SendQueueSize& b) noexcept {
        return {.max_send_wr = a.max_send_wr + b.max_send_wr,
                .max_send_sge = std::max(a.max_send_sge, b.max_send_sge),
                .max_inline_data = std::max(a.max_inline_data, b.max_inline_data),
                .signaled = a.signaled + b.signaled};
    }
    /// Returns the size of a send queue that has room for @p times copies of the requests of @p
    /// size.
    [[nodiscard]] friend constexpr SendQueueSize operator*(std::uint32_t times,
                                                           const SendQueueSize& size) noexcept {
        return {.max_send_wr = times * size.max_send_wr,
                .max_send_sge = size.max_send_sge,
                .max_inline_data = size.max_inline_data,
                .signaled = times * size.signaled};
    }
    friend constexpr bool operator==(const SendQueueSize&, const SendQueueSize&) noexcept = default;

    /// Returns the size of a send queue that has room for @p requests. The function does not read
    /// the member `next` of the requests.
    [[nodiscard]] static SendQueueSize of(std::span<const ibv_send_wr> requests) noexcept {
        SendQueueSize size;
        for (const ibv_send_wr& request : requests) {
            const std::span entries(request.sg_list, static_cast<std::size_t>(request.num_sge));
            std::uint32_t inline_bytes = 0;
            if ((request.send_flags & IBV_SEND_INLINE) != 0) {
                for (const ibv_sge& entry : entries) {
                    inline_bytes += entry.length;
                }
            }
            size = size + SendQueueSize{
                              .max_send_wr = 1,
                              .max_send_sge = static_cast<std::uint32_t>(entries.size()),
                              .max_inline_data = inline_bytes,
                              .signaled = (request.send_flags & IBV_SEND_SIGNALED) != 0 ? 1U : 0U};
        }
        return size;
    }
};

} // namespace rdmabuf
