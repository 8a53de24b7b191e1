// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmabuf {

/// The size of a send queue for requests that are outstanding at the same time.
/// SendList::size_needed() computes it for a list. The first three members are those of
/// QueuePairOptions:
///
///     const SendQueueSize size = 4 * list.size_needed(); // the list is posted 4 times at once
///     options.max_send_wr = size.max_send_wr;
///     options.max_send_sge = size.max_send_sge;
///     options.max_inline_data = size.max_inline_data;
///
/// The rules, which also hold for WorkBatch and QueuePair::post_*():
///   - Each request takes one entry of the queue, whatever its number of scatter-gather entries or
///     inline bytes.
///   - An entry is free again when a completion of its request, or of a later request of the same
///     queue pair, has been polled from the completion queue. Unsignaled requests leave no
///     completion. So at least one of every max_send_wr consecutive requests must be signaled.
///   - A completion queue needs an entry for each outstanding request of its queue pairs, signaled
///     or not, because each request leaves a completion when the queue pair fails.
///   - The device may make the queue larger. QueuePair::attributes(IBV_QP_CAP).cap has its size.
struct SendQueueSize {
    /// Number of requests.
    std::uint32_t max_send_wr = 0;
    /// Maximum number of scatter-gather entries of a request. Inline data counts too, because each
    /// range of it is an entry.
    std::uint32_t max_send_sge = 0;
    /// Maximum number of inline bytes of a request.
    std::uint32_t max_inline_data = 0;
    /// Number of signaled requests: the completions, if all requests succeed. If it is 0, the
    /// entries of these requests are free only after a later signaled request.
    std::uint32_t signaled = 0;

    /// The size for the requests of both at the same time.
    [[nodiscard]] friend constexpr SendQueueSize operator+(const SendQueueSize& a,
                                                           const SendQueueSize& b) noexcept {
        return {.max_send_wr = a.max_send_wr + b.max_send_wr,
                .max_send_sge = std::max(a.max_send_sge, b.max_send_sge),
                .max_inline_data = std::max(a.max_inline_data, b.max_inline_data),
                .signaled = a.signaled + b.signaled};
    }
    /// The size for @p times as many requests at the same time.
    [[nodiscard]] friend constexpr SendQueueSize operator*(std::uint32_t times,
                                                           const SendQueueSize& size) noexcept {
        return {.max_send_wr = times * size.max_send_wr,
                .max_send_sge = size.max_send_sge,
                .max_inline_data = size.max_inline_data,
                .signaled = times * size.signaled};
    }
    friend constexpr bool operator==(const SendQueueSize&, const SendQueueSize&) noexcept = default;

    /// The size for these requests. Their `next` is not used.
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
