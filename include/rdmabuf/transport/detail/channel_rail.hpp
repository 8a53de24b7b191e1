// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/transport/detail/clock.hpp>
#include <rdmabuf/transport/detail/send_queue.hpp>

namespace rdmabuf::transport::detail {

/// One queue pair of a channel, with the counters of its work requests and its failure state.
struct ChannelRail {
    /// @param used_device  the index of the device in SharedState::rails
    ChannelRail(QueuePair pair, std::size_t used_device, std::uint32_t depth) noexcept
        : queue_pair(std::move(pair)), device(used_device), queue(depth) {}

    /// Empty after RailSet::destroy(), which is called if the device reports no completions or the
    /// queue pair could not be moved to the error state.
    QueuePair queue_pair;
    /// The index of the device in SharedState::rails.
    std::size_t device;
    SendQueue queue;
    /// The sequence number of the last work request in `queue` that belongs to a request of the
    /// program or is a fence. Used only for queue pairs other than the first, where close() waits
    /// for this work request; see ChannelState::all_acknowledged().
    std::uint32_t last_needed = test_first_count;

    /// Why the queue pair has failed, as a constant text. nullptr while transfers use the queue
    /// pair.
    const char* failure = nullptr;
    std::int64_t failed_ns = 0;
    /// False after the queue pair has failed, until a new connected queue pair replaces it.
    bool connected = true;
    /// The number of attempts to replace the failed queue pair, up to RailSet::max_replacements.
    /// Each attempt doubles the time until the next attempt. Reset to 0 when the port of the device
    /// becomes active, or when a new queue pair fails after it has worked for longer than
    /// EndpointOptions::probation * 2^max_replacements.
    std::uint8_t replacements = 0;
    std::int64_t replaced_ns = 0;
    /// True if the queue pair is in the error state or destroyed, so that the peer can no longer
    /// write to memory through it.
    bool aborted = false;
    /// For a failed queue pair: true if a last work request is posted. When it completes, all
    /// earlier work requests of the queue pair have completed.
    bool stopped = false;
    /// For a failed queue pair: true if it was destroyed because its device has failed or reported
    /// no completions in time.
    bool abandoned = false;
    /// True after IBV_EVENT_QP_LAST_WQE_REACHED: the queue pair is in the error state, and the
    /// completions of all receives that it has taken from the shared receive queue can be polled.
    bool last_receive = false;
    /// True if a posted work request, or an RDMA write of the peer with immediate data, has
    /// completed on this queue pair since the last call of ChannelState::check().
    bool heard = false;
    /// The time of the last check() at which `heard` was true, no completion was awaited, or the
    /// queue pair had failed; before that, the time of creation or replacement.
    std::int64_t heard_ns = now_ns();
    /// The number of RDMA writes with immediate data that this end has posted on this queue pair.
    /// The number wraps around. Not counted on the first queue pair.
    std::uint32_t immediates_posted = test_first_count;
    /// The highest sequence number (see immediates_posted) of an RDMA write that the peer has
    /// certainly received: a fence that has succeeded, or a write whose whole transfer has
    /// succeeded.
    std::uint32_t immediates_confirmed = test_first_count;
    /// The number of RDMA writes with immediate data that the peer has posted on this queue pair
    /// and that have arrived. Not counted on the first queue pair.
    std::uint32_t immediates_arrived = test_first_count;
};

} // namespace rdmabuf::transport::detail
