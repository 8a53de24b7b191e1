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
/// A record is a header of 8 bytes (its length and its kind) and the bytes, filled up to a multiple
/// of 8. Records do not wrap: where a record does not fit before the end of the ring, a header of
/// the kind "skip" says that the next record is at the start of the ring.
///
/// The header is also what publishes a record: it is 0 until the bytes of the record are written.
/// The producer writes a 0 behind each record before it publishes the record, so the consumer polls
/// a word of the cache line that the producer writes next. The head counts all bytes that were
/// consumed since the ring was made.
///
/// The other process can write all of it at any time. Each side therefore trusts only its own
/// position, reads each word of the other side once, and checks it.

inline constexpr std::size_t record_header_bytes = 8;

/// What a record of @p length bytes takes up.
[[nodiscard]] constexpr std::uint64_t record_bytes(std::uint64_t length) noexcept {
    return record_header_bytes + ((length + 7) & ~std::uint64_t{7});
}

/// Never 0: a header that is 0 is no header yet.
enum class RecordKind : std::uint32_t { data = 1, skip = 2 };

[[nodiscard]] constexpr std::uint64_t record_header(std::uint64_t length,
                                                    RecordKind kind) noexcept {
    return length | std::uint64_t{static_cast<std::uint32_t>(kind)} << 32U;
}

/// The memory of a ring and its index. Both sides have one.
struct RingMemory {
    std::byte* bytes;
    /// A power of two.
    std::uint64_t size;
    /// Written by the consumer.
    std::atomic<std::uint64_t>* head;

    [[nodiscard]] std::atomic_ref<std::uint64_t> header(std::uint64_t position) const noexcept {
        auto* const word = reinterpret_cast<std::uint64_t*>(bytes + (position & (size - 1)));
        return std::atomic_ref<std::uint64_t>(*word);
    }
};

/// Parts that make one record, one after the other.
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
        /// The consumer's index is impossible.
        garbage,
    };

    explicit RingProducer(const RingMemory& ring) noexcept : ring_(ring) {}

    /// Whether a record of @p length bytes fits now; at most about half of the ring fits ever.
    [[nodiscard]] Room room(std::size_t length) noexcept {
        returns_ = false;
        if (offset() >= next_return_ && !consider_return(record_bytes(length))) [[unlikely]] {
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

    /// Where the bytes of the next record go, for which room() has just said that there is enough.
    /// They are not seen by the consumer until commit() with the same length.
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
        // The producer looks next whether the consumer sleeps, and the consumer looks at this word
        // after it has said that it is going to sleep: one of the two has to see the other.
        ring_.header(first).store(header, std::memory_order_seq_cst);
    }

    /// Puts in and publishes the record for which room() has just said that there is enough.
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
    /// A ring whose consumer keeps up is used up to about here only, so that the rest of it takes
    /// up no memory and the first part stays in the processor's cache.
    static constexpr std::uint64_t first_return = std::uint64_t{32} * 1024;
    static constexpr std::uint64_t return_step = std::uint64_t{4} * 1024;

    [[nodiscard]] std::uint64_t offset() const noexcept { return tail_ & (ring_.size - 1); }
    [[nodiscard]] std::uint64_t skipped(std::uint64_t needed) const noexcept {
        const std::uint64_t to_end = ring_.size - offset();
        return needed > to_end || returns_ ? to_end : 0;
    }
    [[nodiscard]] std::uint64_t needed_for(std::size_t length) const noexcept {
        const std::uint64_t size = record_bytes(length);
        // And the header behind the record, which says that nothing follows yet.
        return size + skipped(size) + record_header_bytes;
    }
    /// False: the consumer's index is impossible.
    [[nodiscard]] bool read_head() noexcept {
        const std::uint64_t head = ring_.head->load(std::memory_order_seq_cst);
        if (head - head_ > tail_ - head_ || head % 8 != 0) {
            return false;
        }
        head_ = head;
        return true;
    }
    /// Whether the next record of @p size bytes goes to the start of the ring, because the ring is
    /// empty. False: the consumer's index is impossible.
    [[nodiscard]] bool consider_return(std::uint64_t size) noexcept {
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
    /// As last seen.
    std::uint64_t head_ = 0;
    /// From this offset on, records go to the start of the ring when it is empty.
    std::uint64_t next_return_ = first_return;
    bool returns_ = false;
};

class RingConsumer {
  public:
    enum class Next {
        record,
        nothing,
        /// What the producer wrote is no record.
        garbage,
    };

    /// @param longest  the longest record, in bytes
    RingConsumer(const RingMemory& ring, std::size_t longest) noexcept
        : ring_(ring), longest_(longest) {}

    /// The next record, which stays where it is until pop().
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

    /// After the last pop() for now: makes sure that a producer which is about to sleep for want of
    /// room either sees what pop() freed or is seen to sleep.
    void settle() noexcept { ring_.head->store(head_, std::memory_order_seq_cst); }

    /// Whether there is no record, as seen after announcing to sleep.
    [[nodiscard]] bool empty() const noexcept {
        return head_ >= end_ || ring_.header(head_).load(std::memory_order_seq_cst) == 0;
    }

    /// The producer has closed the connection: what it has published by now is all there will be,
    /// whatever a process writes later that was expected to have ended.
    void freeze() noexcept {
        RingConsumer ahead = *this;
        std::span<const std::byte> record;
        // No more records than the ring has room for.
        const std::uint64_t limit = head_ + ring_.size;
        Next next = Next::record;
        while (ahead.head_ < limit && (next = ahead.next(record)) == Next::record) {
            ahead.head_ += ahead.step_;
        }
        // Garbage is left for next() to find.
        end_ = ahead.head_ + (next == Next::garbage ? record_header_bytes : 0);
    }

  private:
    [[nodiscard]] std::uint64_t offset() const noexcept { return head_ & (ring_.size - 1); }

    /// @param header  was read once: the other side could change it between a check and the use
    [[nodiscard]] Next parse(std::uint64_t header, std::span<const std::byte>& record) noexcept {
        constexpr std::uint64_t data = record_header(0, RecordKind::data);
        if (head_ >= end_) [[unlikely]] {
            return Next::nothing;
        }
        if (header >> 32U == static_cast<std::uint32_t>(RecordKind::skip)) [[unlikely]] {
            // The producer skips only to put a record at the start, which it published with this
            // header. The length says the same as the position.
            const std::uint64_t to_end = ring_.size - offset();
            if (offset() == 0 || (header & 0xffffffffU) + record_header_bytes != to_end) {
                return Next::garbage;
            }
            head_ += to_end;
            header = ring_.header(0).load(std::memory_order_relaxed);
        }
        // Every other kind makes this longer than any record: an unknown one, or a second skip.
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
    /// Nothing is consumed from here on; only after freeze().
    std::uint64_t end_ = ~std::uint64_t{0};
    /// What the record that next() returned takes up.
    std::uint64_t step_ = 0;
};

} // namespace softverbs::fabric
