// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <rdmabuf/transport/detail/clock.hpp>

namespace rdmabuf::transport::detail {

/// The kind of work request to which a completion belongs.
enum class Work : std::uint8_t {
    /// A receive of a shared receive queue. The other bits of its wr_id are not those of a WorkId:
    /// see ReceiveReplenisher::contains().
    receive,
    /// A work request on a queue pair that is connected to a peer. WorkId::number is
    /// RequestState::index.
    remote,
    /// Like `remote`, but an unsignaled work request of a chain. RequestState::pending counts only
    /// the last work request of the chain, which is signaled.
    remote_part,
    /// A fence on a queue pair that is connected to a peer; see RailSet::post_fence().
    /// WorkId::number has the lower 24 bits of its sequence number
    /// (ChannelRail::immediates_posted).
    fence,
    /// A work request on a loopback queue pair. WorkId::number is RequestState::index.
    loopback,
    /// A receive of a loopback queue pair. WorkId::number is RequestState::index.
    loopback_receive,
    /// A send of a datagram by the SetupQueuePair.
    setup_send,
    /// A receive of the SetupQueuePair. WorkId::number is the index of the receive buffer.
    setup_receive,
};

/// The contents of the wr_id of a work request.
struct WorkId {
    /// The position of the lowest bit of `work` in the wr_id.
    static constexpr unsigned work_shift = 56;
    /// The value of `number` if there is no request, fence or receive buffer to identify.
    static constexpr std::uint32_t no_request = (1U << 24) - 1;

    Work work{};
    std::uint32_t number = no_request;
    /// The sequence number of this work request on its send queue. The first number is
    /// test_first_count + 1; the numbers wrap around.
    std::uint32_t sequence = 0;

    [[nodiscard]] std::uint64_t encode() const noexcept {
        return static_cast<std::uint64_t>(work) << work_shift |
               static_cast<std::uint64_t>(number) << 32 | sequence;
    }
    [[nodiscard]] static WorkId decode(std::uint64_t wr_id) noexcept {
        return {.work = static_cast<Work>(wr_id >> work_shift),
                .number = static_cast<std::uint32_t>(wr_id >> 32) & 0xffffffU,
                .sequence = static_cast<std::uint32_t>(wr_id)};
    }
};

/// Counts the used entries of a send queue. Completions arrive in order. Therefore a completion
/// frees the entries of its work request and of all earlier work requests.
class SendQueue {
  public:
    /// @param depth  number of entries of the send queue. One entry is reserved for the last work
    ///               request that RailSet posts when the queue pair fails.
    explicit SendQueue(std::uint32_t depth) noexcept
        : depth_(depth - 1), full_depth_(depth - 1), signal_interval_((depth - 1) / 4) {}

    /// Returns true if a work request can be posted, and at least @p reserve entries are still free
    /// after that.
    [[nodiscard]] bool has_room(std::uint32_t reserve = 0) const noexcept {
        return posted_ - completed_ + reserve < depth_;
    }
    /// Returns the number of work requests that can be posted if at least @p reserve entries must
    /// stay free.
    [[nodiscard]] std::uint32_t room(std::uint32_t reserve) const noexcept {
        return depth_ - std::min(depth_, posted_ - completed_ + reserve);
    }
    /// After suspend(), has_room() returns false until resume().
    void suspend() noexcept { depth_ = 0; }
    void resume() noexcept { depth_ = full_depth_; }
    [[nodiscard]] bool idle() const noexcept { return posted_ == completed_; }
    /// An unsignaled work request is in flight until a later work request has completed.
    [[nodiscard]] std::uint32_t in_flight() const noexcept { return posted_ - completed_; }
    /// Returns true if a posted, signaled work request has not completed.
    [[nodiscard]] bool awaits_completion() const noexcept { return !is_completed(signaled_); }
    /// Returns the sequence number of the next work request.
    [[nodiscard]] std::uint32_t next() const noexcept { return posted_ + 1; }
    /// Returns true if the next work request must be signaled, because unsignaled work requests
    /// would otherwise use a quarter of the send queue.
    [[nodiscard]] bool must_signal() const noexcept {
        return posted_ + 1 - signaled_ >= signal_interval_;
    }
    /// Returns how many unsignaled work requests can be posted before must_signal() becomes true,
    /// if at least @p reserve entries must stay free.
    [[nodiscard]] std::uint32_t unsignaled_left(std::uint32_t reserve) const noexcept {
        const std::uint32_t unsignaled = posted_ + 1 - signaled_;
        return std::min(room(reserve), signal_interval_ - std::min(signal_interval_, unsignaled));
    }
    /// Counts @p count posted work requests. @param signaled  true if the last of them is signaled
    void posted(bool signaled, std::uint32_t count = 1) noexcept {
        posted_ += count;
        if (signaled) {
            signaled_ = posted_;
        }
    }
    void completed(std::uint32_t sequence) noexcept { completed_ = sequence; }
    [[nodiscard]] bool is_completed(std::uint32_t sequence) const noexcept {
        return static_cast<std::int32_t>(completed_ - sequence) >= 0;
    }
    /// Returns true if the last posted work request is signaled. Its completion then shows that all
    /// earlier work requests have completed.
    [[nodiscard]] bool all_signaled() const noexcept { return signaled_ == posted_; }

  private:
    /// The number of entries that may be used: full_depth_, or 0 while the queue is suspended.
    std::uint32_t depth_;
    std::uint32_t full_depth_;
    std::uint32_t signal_interval_;
    std::uint32_t posted_ = test_first_count;
    std::uint32_t completed_ = test_first_count;
    std::uint32_t signaled_ = test_first_count;
};

} // namespace rdmabuf::transport::detail
