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

/// The kind of work request that a completion belongs to. The upper bits of wr_id contain the kind.
enum class Work : std::uint8_t {
    /// A receive. WorkId::number is the index of its bounce buffer.
    receive,
    /// A work request on the queue pair to the peer. WorkId::number is the index of its operation.
    remote,
    /// A work request on the loopback queue pair. WorkId::number is the index of its operation.
    local,
};

struct WorkId {
    Work work{};
    /// The index of an operation, or OperationTable::none; for a receive, the index of its bounce
    /// buffer.
    std::uint32_t number = 0;
    /// The number of this work request on its send queue: counted from 1, wraps around.
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

/// Counts the used entries of a send queue. Completions arrive in order. Therefore one completion
/// frees the entries of all earlier work requests.
class SendQueue {
  public:
    explicit SendQueue(std::uint32_t depth) noexcept : depth_(depth) {}

    /// Returns true if another work request fits, and @p reserve entries remain free after it.
    [[nodiscard]] bool has_room(std::uint32_t reserve) const noexcept {
        return posted_ - completed_ + reserve < depth_;
    }
    [[nodiscard]] bool idle() const noexcept { return posted_ == completed_; }
    /// Returns the sequence number of the next work request.
    [[nodiscard]] std::uint32_t next() const noexcept { return posted_ + 1; }
    /// Returns true if the next work request must be signaled, because the unsignaled work requests
    /// before it fill a quarter of the send queue.
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
    /// Returns true if the last posted work request is signaled: its completion also covers all
    /// earlier work requests.
    [[nodiscard]] bool all_signaled() const noexcept { return signaled_ == posted_; }

  private:
    std::uint32_t depth_;
    std::uint32_t posted_ = 0;
    std::uint32_t completed_ = 0;
    std::uint32_t signaled_ = 0;
};

/// One device of a channel, with a queue pair to the peer and a loopback queue pair. The loopback
/// queue pair performs flush reads and copies messages to device memory.
struct Rail {
    /// The constructor is defined in the library, because it may throw. If it were defined in this
    /// header, a program that is compiled with -fno-exceptions would not destroy the members after
    /// an exception.
    RDMABUF_EXPORT Rail(ProtectionDomain protection_domain, std::uint32_t peer_depth,
                        std::uint32_t self_depth, unsigned cq_depth);

    ProtectionDomain pd;
    CompletionQueue cq;
    std::optional<MemoryRegion> arena = std::nullopt;
    /// Registration of the scratch line of the arena: memory that the peer may write to and whose
    /// contents are not used.
    std::optional<MemoryRegion> probe = std::nullopt;
    std::optional<PreparedQueuePair> prepared = std::nullopt;
    std::optional<QueuePair> peer = std::nullopt;
    std::optional<QueuePair> self = std::nullopt;
    SendQueue to_peer;
    SendQueue to_self;
};

} // namespace rdmabuf::transport::detail
