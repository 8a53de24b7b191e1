// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace softverbs::fabric {

/// A ring of bytes in shared memory, with one producer and one consumer in different processes.
///
/// A record is an 8-byte header (length and kind) followed by the bytes, padded to a multiple of 8.
/// A record never wraps around. If it does not fit before the end of the ring, a header of the kind
/// "skip" says that the next record is at the start of the ring.
///
/// The header also publishes the record: it is 0 until the bytes of the record are written. Before
/// the producer publishes a record it writes a 0 into the header position after it. So the consumer
/// detects a new record by polling the header at its own position. The head counts all bytes that
/// were consumed since the ring was created.
///
/// The other process can write to the whole ring at any time. Therefore each side trusts only its
/// own position, reads each word of the other side once, and validates it.

inline constexpr std::size_t record_header_bytes = 8;

/// The bytes that a record of @p length bytes occupies in the ring.
[[nodiscard]] constexpr std::uint64_t record_bytes(std::uint64_t length) noexcept {
    return record_header_bytes + ((length + 7) & ~std::uint64_t{7});
}

/// The kind of a header. No kind is 0, because a header of 0 means that no record is published.
enum class RecordKind : std::uint32_t { data = 1, skip = 2 };

[[nodiscard]] constexpr std::uint64_t record_header(std::uint64_t length,
                                                    RecordKind kind) noexcept {
    return length | std::uint64_t{static_cast<std::uint32_t>(kind)} << 32U;
}

/// The memory of a ring and the consumer's index. Each side has such a view.
struct RingMemory {
    std::byte* bytes;
    /// Bytes, a power of two.
    std::uint64_t size;
    /// The number of bytes consumed. The consumer writes it.
    std::atomic<std::uint64_t>* head;

    [[nodiscard]] std::atomic_ref<std::uint64_t> header(std::uint64_t position) const noexcept {
        auto* const word = reinterpret_cast<std::uint64_t*>(bytes + (position & (size - 1)));
        return std::atomic_ref<std::uint64_t>(*word);
    }
};

/// The parts of one record, in order.
using RecordParts = std::span<const std::span<const std::byte>>;

[[nodiscard]] constexpr std::size_t length_of(RecordParts parts) noexcept {
    std::size_t length = 0;
    for (const auto part : parts) {
        length += part.size();
    }
    return length;
}

class RingProducer {
  public:
    enum class Room {
        enough,
        not_now,
        /// The consumer's index is invalid.
        garbage,
    };

    explicit RingProducer(const RingMemory& ring) noexcept : ring_(ring) {}

    /// Whether a record of @p length bytes fits now. A record longer than about half of the ring
    /// may never fit.
    [[nodiscard]] Room room(std::size_t length) noexcept {
        returns_ = false;
        if (offset() >= next_return_ && !check_return(record_bytes(length))) [[unlikely]] {
            return Room::garbage;
        }
        const std::uint64_t needed = needed_for(length);
        if (needed <= ring_.size - (tail_ - head_)) {
            return Room::enough;
        }
        if (!read_head()) {
            return Room::garbage;
        }
        return needed <= ring_.size - (tail_ - head_) ? Room::enough : Room::not_now;
    }

    /// Returns the address for the bytes of the next record, after room() has returned Room::enough
    /// for @p length. The consumer does not see the record until commit() with the same length.
    [[nodiscard]] std::byte* reserve(std::size_t length) noexcept {
        return ring_.bytes + ((tail_ + skipped(record_bytes(length))) & (ring_.size - 1)) +
               record_header_bytes;
    }
    void commit(std::size_t length) noexcept {
        const std::uint64_t size = record_bytes(length);
        const std::uint64_t skip = skipped(size);
        const std::uint64_t first = tail_;
        tail_ += skip + size;
        ring_.header(tail_).store(0, std::memory_order_relaxed);
        std::uint64_t header = record_header(length, RecordKind::data);
        if (skip != 0) [[unlikely]] {
            ring_.header(0).store(header, std::memory_order_relaxed);
            header = record_header(skip - record_header_bytes, RecordKind::skip);
            next_return_ = first_return;
            returns_ = false;
        }
        // This store publishes the record. Afterwards the producer checks whether the consumer
        // sleeps. The consumer sets its sleep flag first, and then checks this header. With
        // sequential consistency at least one side sees the store of the other, so no wakeup is
        // lost.
        ring_.header(first).store(header, std::memory_order_seq_cst);
    }

    /// Copies and publishes a record, after room() has returned Room::enough for its length.
    void put(RecordParts parts, std::size_t length) noexcept {
        std::byte* to = reserve(length);
        for (const auto part : parts) {
            if (!part.empty()) {
                std::memcpy(to, part.data(), part.size());
                to += part.size();
            }
        }
        commit(length);
    }

  private:
    /// If the ring is empty and the producer is beyond this offset, the next record goes to the
    /// start of the ring. So a ring whose consumer keeps up uses only its first pages, which saves
    /// memory and stays in the CPU cache.
    static constexpr std::uint64_t first_return = std::uint64_t{32} * 1024;
    static constexpr std::uint64_t return_step = std::uint64_t{4} * 1024;

    [[nodiscard]] std::uint64_t offset() const noexcept { return tail_ & (ring_.size - 1); }
    [[nodiscard]] std::uint64_t skipped(std::uint64_t needed) const noexcept {
        const std::uint64_t to_end = ring_.size - offset();
        return needed > to_end || returns_ ? to_end : 0;
    }
    [[nodiscard]] std::uint64_t needed_for(std::size_t length) const noexcept {
        const std::uint64_t size = record_bytes(length);
        // Add the space for the header that follows the record, which the producer sets to 0.
        return size + skipped(size) + record_header_bytes;
    }
    /// Loads the consumer's index. Returns false if it is invalid.
    [[nodiscard]] bool read_head() noexcept {
        const std::uint64_t head = ring_.head->load(std::memory_order_seq_cst);
        if (head - head_ > tail_ - head_ || head % 8 != 0) {
            return false;
        }
        head_ = head;
        return true;
    }
    /// Decides whether the next record of @p size bytes goes to the start of the ring, which
    /// requires an empty ring. Returns false if the consumer's index is invalid.
    [[nodiscard]] bool check_return(std::uint64_t size) noexcept {
        if (!read_head()) {
            return false;
        }
        returns_ = head_ == tail_ && size + record_header_bytes <= offset();
        if (!returns_) {
            next_return_ = offset() + return_step;
        }
        return true;
    }

    RingMemory ring_;
    std::uint64_t tail_ = 0;
    /// The consumer's index as last loaded.
    std::uint64_t head_ = 0;
    /// From this offset on, the producer checks whether the ring is empty, to continue at the
    /// start.
    std::uint64_t next_return_ = first_return;
    bool returns_ = false;
};

class RingConsumer {
  public:
    enum class Next {
        record,
        nothing,
        /// The producer wrote an invalid header.
        garbage,
    };

    /// @param longest  the maximum length of a record, in bytes
    RingConsumer(const RingMemory& ring, std::size_t longest) noexcept
        : ring_(ring), longest_(longest) {}

    /// Returns a view of the next record in the ring, which stays valid until pop().
    [[nodiscard]] Next next(std::span<const std::byte>& record) noexcept {
        const std::uint64_t header = ring_.header(head_).load(std::memory_order_acquire);
        if (header == 0) {
            return Next::nothing;
        }
        return parse(header, record);
    }

    /// Consumes the record that next() returned.
    void pop() noexcept {
        head_ += step_;
        step_ = 0;
        ring_.head->store(head_, std::memory_order_release);
    }

    /// Call it after the last pop() of a batch. It stores the index again with sequential
    /// consistency: a producer that is about to sleep until there is room either sees the new
    /// index, or has its sleep flag seen by this consumer.
    void settle() noexcept { ring_.head->store(head_, std::memory_order_seq_cst); }

    /// Whether the ring has no record. The load is sequentially consistent, so it may follow the
    /// store of the consumer's sleep flag.
    [[nodiscard]] bool empty() const noexcept {
        return head_ >= end_ || ring_.header(head_).load(std::memory_order_seq_cst) == 0;
    }

    /// Call it when the producer has closed the connection. Records that are published after this
    /// call are ignored, even if a process still writes to the memory.
    void freeze() noexcept {
        RingConsumer ahead = *this;
        std::span<const std::byte> record;
        // The producer may still write, so the loop stops after one ring size.
        const std::uint64_t limit = head_ + ring_.size;
        Next next = Next::record;
        while (ahead.head_ < limit && (next = ahead.next(record)) == Next::record) {
            ahead.head_ += ahead.step_;
        }
        // If the next header is invalid, next() must still report it.
        end_ = ahead.head_ + (next == Next::garbage ? record_header_bytes : 0);
    }

  private:
    [[nodiscard]] std::uint64_t offset() const noexcept { return head_ & (ring_.size - 1); }

    /// @param header  a copy that was loaded once, because the other side could change the header
    ///         between the check and the use
    [[nodiscard]] Next parse(std::uint64_t header, std::span<const std::byte>& record) noexcept {
        constexpr std::uint64_t data = record_header(0, RecordKind::data);
        if (head_ >= end_) [[unlikely]] {
            return Next::nothing;
        }
        if (header >> 32U == static_cast<std::uint32_t>(RecordKind::skip)) [[unlikely]] {
            // The producer writes a skip header only together with a record at the start of the
            // ring, and this header publishes both. The length in the skip header must reach
            // exactly to the end of the ring.
            const std::uint64_t to_end = ring_.size - offset();
            if (offset() == 0 || (header & 0xffffffffU) + record_header_bytes != to_end) {
                return Next::garbage;
            }
            head_ += to_end;
            header = ring_.header(0).load(std::memory_order_relaxed);
        }
        // For any other kind, and for a second skip, this difference exceeds the maximum length.
        const std::uint64_t length = header - data;
        if (length > longest_ || record_bytes(length) > ring_.size - offset()) {
            return Next::garbage;
        }
        step_ = record_bytes(length);
        record = {ring_.bytes + offset() + record_header_bytes, static_cast<std::size_t>(length)};
        return Next::record;
    }

    RingMemory ring_;
    std::size_t longest_;
    std::uint64_t head_ = 0;
    /// Position at which consumption ends. Set by freeze().
    std::uint64_t end_ = ~std::uint64_t{0};
    /// Number of bytes that the record returned by next() occupies in the ring.
    std::uint64_t step_ = 0;
};

} // namespace softverbs::fabric
