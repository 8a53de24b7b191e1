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
/// of 8. Records do not wrap: where one does not fit before the end, a header there says to skip
/// the rest. The tail counts all bytes ever put in, the head all bytes ever taken out.
///
/// The other process can write all of it at any time. Each side therefore trusts only its own copy
/// of its own index, reads each word of the other side once, and checks it.

inline constexpr std::size_t record_header_bytes = 8;

/// What a record of @p length bytes takes up.
[[nodiscard]] constexpr std::uint64_t record_bytes(std::uint64_t length) noexcept {
    return record_header_bytes + ((length + 7) & ~std::uint64_t{7});
}

enum class RecordKind : std::uint32_t { data, skip };

[[nodiscard]] constexpr std::uint64_t record_header(std::uint64_t length,
                                                    RecordKind kind) noexcept {
    return length | std::uint64_t{static_cast<std::uint32_t>(kind)} << 32U;
}

/// The memory of a ring and its indices. Both sides have one.
struct RingMemory {
    std::byte* bytes;
    /// A power of two.
    std::uint64_t size;
    /// Written by the producer.
    std::atomic<std::uint64_t>* tail;
    /// Written by the consumer.
    std::atomic<std::uint64_t>* head;
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
        const std::uint64_t needed = record_bytes(length) + skipped(record_bytes(length));
        if (needed <= ring_.size - (tail_ - head_)) {
            return Room::enough;
        }
        const std::uint64_t head = ring_.head->load(std::memory_order_seq_cst);
        if (head - head_ > tail_ - head_ || head % 8 != 0) {
            return Room::garbage;
        }
        head_ = head;
        return needed <= ring_.size - (tail_ - head_) ? Room::enough : Room::not_now;
    }

    /// Puts in and publishes the record for which room() has just said that there is enough.
    void put(RecordParts parts, std::size_t length) noexcept {
        const std::uint64_t skip = skipped(record_bytes(length));
        if (skip != 0) {
            write_header(record_header(skip - record_header_bytes, RecordKind::skip));
            tail_ += skip;
        }
        write_header(record_header(length, RecordKind::data));
        std::byte* to = ring_.bytes + offset() + record_header_bytes;
        for (const auto part : parts) {
            if (!part.empty()) {
                std::memcpy(to, part.data(), part.size());
                to += part.size();
            }
        }
        tail_ += record_bytes(length);
        // Whoever publishes looks next whether the consumer sleeps, and the consumer looks here
        // after it has said that it is going to: one of the two has to see the other.
        ring_.tail->store(tail_, std::memory_order_seq_cst);
    }

  private:
    [[nodiscard]] std::uint64_t offset() const noexcept { return tail_ & (ring_.size - 1); }
    [[nodiscard]] std::uint64_t skipped(std::uint64_t needed) const noexcept {
        const std::uint64_t to_end = ring_.size - offset();
        return needed > to_end ? to_end : 0;
    }
    void write_header(std::uint64_t header) noexcept {
        std::memcpy(ring_.bytes + offset(), &header, sizeof header);
    }

    RingMemory ring_;
    std::uint64_t tail_ = 0;
    /// As last seen.
    std::uint64_t head_ = 0;
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

    /// The record that is next, which stays where it is until pop().
    [[nodiscard]] Next next(std::span<const std::byte>& record) noexcept {
        if (head_ == tail_) {
            if (frozen_) {
                return Next::nothing;
            }
            tail_ = ring_.tail->load(std::memory_order_acquire);
            if (head_ == tail_) {
                return Next::nothing;
            }
        }
        return parse(record);
    }

    /// Done with the record that next() gave.
    void pop() noexcept {
        head_ += step_;
        step_ = 0;
        ring_.head->store(head_, std::memory_order_release);
    }

    /// After the last pop() for now: makes sure that a producer which is about to sleep for want of
    /// room either sees what pop() freed or is seen to sleep.
    void settle() noexcept { ring_.head->store(head_, std::memory_order_seq_cst); }

    /// Whether anything is left, as seen after announcing to sleep.
    [[nodiscard]] bool empty() const noexcept {
        return head_ == (frozen_ ? tail_ : ring_.tail->load(std::memory_order_seq_cst));
    }

    /// The producer is gone: what it has published by now is all there will be.
    void freeze() noexcept {
        tail_ = ring_.tail->load(std::memory_order_acquire);
        frozen_ = true;
    }

  private:
    [[nodiscard]] std::uint64_t offset() const noexcept { return head_ & (ring_.size - 1); }

    [[nodiscard]] Next parse(std::span<const std::byte>& record) noexcept {
        const std::uint64_t available = tail_ - head_;
        if (available > ring_.size || available % 8 != 0) {
            return Next::garbage;
        }
        std::uint64_t header = read_header();
        if (header >> 32U == static_cast<std::uint32_t>(RecordKind::skip)) {
            const std::uint64_t to_end = ring_.size - offset();
            // The producer skips only to put a record at the start, so there is one.
            if (offset() == 0 || to_end >= available) {
                return Next::garbage;
            }
            head_ += to_end;
            header = read_header();
        }
        // Longer than any record is what has a kind, too: one that there is not, or a second skip.
        const std::uint64_t step = header <= longest_ ? record_bytes(header) : ~std::uint64_t{0};
        if (step > tail_ - head_ || step > ring_.size - offset()) {
            return Next::garbage;
        }
        step_ = step;
        record = {ring_.bytes + offset() + record_header_bytes, static_cast<std::size_t>(header)};
        return Next::record;
    }

    /// Read once: the other side could change it between a check and the use.
    [[nodiscard]] std::uint64_t read_header() const noexcept {
        auto* const word = reinterpret_cast<std::uint64_t*>(ring_.bytes + offset());
        return std::atomic_ref<std::uint64_t>(*word).load(std::memory_order_relaxed);
    }

    RingMemory ring_;
    std::size_t longest_;
    std::uint64_t head_ = 0;
    /// As last seen.
    std::uint64_t tail_ = 0;
    /// What the record given out by next() takes up.
    std::uint64_t step_ = 0;
    bool frozen_ = false;
};

} // namespace softverbs::fabric
