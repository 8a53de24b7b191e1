// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/memory_region.hpp>
#include <rdmabuf/queue_pair.hpp>

namespace rdmabuf::transport::detail {

/// What a completion is of; in the upper bits of wr_id.
enum class Work : std::uint8_t {
    /// A receive: the number is the slot.
    receive,
    /// Anything to the peer: the number is the operation.
    remote,
    /// Anything to this channel's own queue pair, as `remote`.
    local,
};

struct WorkId {
    Work work{};
    /// An operation, or OperationTable::none; a slot.
    std::uint32_t number = 0;
    /// Of the queue pair: how many it had been given with this one.
    std::uint32_t sequence = 0;

    [[nodiscard]] std::uint64_t encode() const noexcept {
        return static_cast<std::uint64_t>(work) << 56 | static_cast<std::uint64_t>(number) << 32 |
               sequence;
    }
    [[nodiscard]] static WorkId decode(std::uint64_t wr_id) noexcept {
        return {.work = static_cast<Work>(wr_id >> 56),
                .number = static_cast<std::uint32_t>(wr_id >> 32) & 0xffffff,
                .sequence = static_cast<std::uint32_t>(wr_id)};
    }
};

/// How full a send queue is. Completions come in order, so one tells of all before it.
class SendQueue {
  public:
    explicit SendQueue(std::uint32_t depth) noexcept : depth_(depth) {}

    /// Whether there is room for one more, with @p reserve left over.
    [[nodiscard]] bool has_room(std::uint32_t reserve) const noexcept {
        return posted_ - completed_ + reserve < depth_;
    }
    [[nodiscard]] bool idle() const noexcept { return posted_ == completed_; }
    /// The number that the next one will have, and whether it has to leave a completion so that
    /// room is noticed.
    [[nodiscard]] std::uint32_t next() const noexcept { return posted_ + 1; }
    [[nodiscard]] bool must_signal() const noexcept {
        return posted_ + 1 - signaled_ >= depth_ / 4;
    }
    void posted(bool signaled) noexcept {
        ++posted_;
        if (signaled) {
            signaled_ = posted_;
        }
    }
    void completed(std::uint32_t sequence) noexcept { completed_ = sequence; }
    [[nodiscard]] bool is_completed(std::uint32_t sequence) const noexcept {
        return static_cast<std::int32_t>(completed_ - sequence) >= 0;
    }
    /// Whether everything so far leaves, or has left, a completion behind it.
    [[nodiscard]] bool all_signaled() const noexcept { return signaled_ == posted_; }

  private:
    std::uint32_t depth_;
    std::uint32_t posted_ = 0;
    std::uint32_t completed_ = 0;
    std::uint32_t signaled_ = 0;
};

/// One device of a channel: a queue pair to the peer, and one to itself, for what has to be read
/// back or copied by the device.
struct Rail {
    /// In the library, because it may throw, which a program without exceptions could not clean up
    /// after.
    RDMABUF_EXPORT Rail(ProtectionDomain protection_domain, std::uint32_t peer_depth,
                        std::uint32_t self_depth, unsigned cq_depth);

    ProtectionDomain pd;
    CompletionQueue cq;
    std::optional<MemoryRegion> arena = std::nullopt;
    /// The scratch line of the arena, to which the peer may write.
    std::optional<MemoryRegion> probe = std::nullopt;
    std::optional<PreparedQueuePair> prepared = std::nullopt;
    std::optional<QueuePair> peer = std::nullopt;
    std::optional<QueuePair> self = std::nullopt;
    SendQueue to_peer;
    SendQueue to_self;
};

} // namespace rdmabuf::transport::detail
