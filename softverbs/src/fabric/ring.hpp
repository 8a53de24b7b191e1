// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace softverbs::fabric {

/// A ring of bytes in shared memory. One process is the producer and another one the consumer.
///
/// A record consists of a header of 8 bytes (length and kind) and its bytes, padded to a multiple
/// of 8. A record does not wrap around. If it does not fit before the end of the ring, a header of
/// kind "skip" is written there, and the record is written at the start of the ring.
///
/// A header is 0 until its record is complete. Before the producer writes the header of a record,
/// it writes 0 to the position after the record. So the consumer finds a new record by polling the
/// header at its own position. The head is the number of bytes that were consumed since the ring
/// was created.
///
/// The other process can write to the ring at any time. Therefore each process trusts only its own
/// position. It loads each word that the other process has written once, and checks the loaded
/// value.

inline constexpr std::size_t record_header_bytes = 8;

/// Returns the number of bytes that a record of @p length bytes occupies in the ring.
[[nodiscard]] constexpr std::uint64_t record_bytes(std::uint64_t length) noexcept {
    return record_header_bytes + ((length + 7) & ~std::uint64_t{7});
}

/// The kind in the header of a record. It is not 0, because the value 0 means "no record yet".
enum class RecordKind : std::uint32_t { data = 1, skip = 2 };

[[nodiscard]] constexpr std::uint64_t record_header(std::uint64_t length,
                                                    RecordKind kind) noexcept {
    return length | std::uint64_t{static_cast<std::uint32_t>(kind)} << 32U;
}

/// The memory of a ring and its head. The producer and the consumer have one RingMemory each.
struct RingMemory {
    std::byte* bytes;
    /// Size of the ring in bytes, a power of two.
    std::uint64_t size;
    /// The head: number of bytes that were consumed. Only the consumer changes it.
    std::atomic<std::uint64_t>* head;

    [[nodiscard]] std::atomic_ref<std::uint64_t> header(std::uint64_t position) const noexcept {
        auto* const word = reinterpret_cast<std::uint64_t*>(bytes + (position & (size - 1)));
        return std::atomic_ref<std::uint64_t>(*word);
    }
};

/// The bytes of one record, in several buffers.
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
        /// The consumer has written an invalid head.
        garbage,
    };

    explicit RingProducer(const RingMemory& ring) noexcept : ring_(ring) {}

    /// Returns whether a record of @p length bytes fits into the ring now, or Room::garbage if the
    /// consumer has written an invalid head. If the record is longer
    /// than about half of the ring, it may never fit.
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

    /// Returns the address at which the caller must write the bytes of the next record. room() must
    /// have returned Room::enough for this length. commit() with the same length then publishes the
    /// record.
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
        // This store publishes the record. The producer then loads the sleep flag of the consumer.
        // The consumer first sets its sleep flag and then loads this header. These accesses are
        // sequentially consistent. Therefore at least one process sees the store of the other one,
        // and no wakeup is lost.
        ring_.header(first).store(header, std::memory_order_seq_cst);
    }

    /// Writes and publishes a record. room() must have returned Room::enough for its length.
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
    /// When the producer has passed this offset and the ring is empty, it continues at the start of
    /// the ring. Then only the first pages of the ring are used if the consumer is fast. These
    /// pages stay in the CPU cache.
    static constexpr std::uint64_t first_return = std::uint64_t{8} * 1024;
    static constexpr std::uint64_t return_step = std::uint64_t{4} * 1024;

    [[nodiscard]] std::uint64_t offset() const noexcept { return tail_ & (ring_.size - 1); }
    [[nodiscard]] std::uint64_t skipped(std::uint64_t needed) const noexcept {
        const std::uint64_t to_end = ring_.size - offset();
        return needed > to_end || returns_ ? to_end : 0;
    }
    [[nodiscard]] std::uint64_t needed_for(std::size_t length) const noexcept {
        const std::uint64_t size = record_bytes(length);
        // After the record, the producer writes 0 to the header of the next record. Include the
        // space for this header.
        return size + skipped(size) + record_header_bytes;
    }
    /// Loads the head, which the consumer changes. Returns false if its value is invalid.
    [[nodiscard]] bool read_head() noexcept {
        const std::uint64_t head = ring_.head->load(std::memory_order_seq_cst);
        if (head - head_ > tail_ - head_ || head % 8 != 0) {
            return false;
        }
        head_ = head;
        return true;
    }
    /// Decides whether the next record, which occupies @p size bytes, is written at the start of
    /// the ring. This is possible only if the ring is empty. Returns false if the head is invalid.
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
    /// The value of the head when it was last loaded.
    std::uint64_t head_ = 0;
    /// The next offset at which the producer checks whether the ring is empty, so that the next
    /// record can be written at the start of the ring.
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

    /// @param longest  maximum length of a record in bytes
    RingConsumer(const RingMemory& ring, std::size_t longest) noexcept
        : ring_(ring), longest_(longest) {}

    /// Stores in @p record a view of the next record in the ring. It is valid until pop().
    [[nodiscard]] Next next(std::span<const std::byte>& record) noexcept {
        const std::uint64_t header = ring_.header(head_).load(std::memory_order_acquire);
        if (header == 0) {
            return Next::nothing;
        }
        return parse(header, record);
    }

    /// Consumes the record that next() has returned.
    void pop() noexcept {
        head_ += step_;
        step_ = 0;
        ring_.head->store(head_, std::memory_order_release);
    }

    /// Stores the head again with sequential consistency. Called after the last pop() of a batch,
    /// before the consumer loads the flag of a producer that waits for room. Then either the
    /// producer sees the new head, or the consumer sees the flag.
    void settle() noexcept { ring_.head->store(head_, std::memory_order_seq_cst); }

    /// Returns whether the ring contains no record. The consumer stores its sleep flag before this
    /// call. The load here is sequentially consistent, so that it is not executed before that
    /// store.
    [[nodiscard]] bool empty() const noexcept {
        return head_ >= end_ || ring_.header(head_).load(std::memory_order_seq_cst) == 0;
    }

    /// Called when the producer has closed the connection. Records that are published later are
    /// ignored, even if a process still writes to the memory.
    void freeze() noexcept {
        RingConsumer ahead = *this;
        std::span<const std::byte> record;
        // Limit the loop to one ring size, because the producer may still be writing records.
        const std::uint64_t limit = head_ + ring_.size;
        Next next = Next::record;
        while (ahead.head_ < limit && (next = ahead.next(record)) == Next::record) {
            ahead.head_ += ahead.step_;
        }
        // If the next header is invalid, include it, so that next() reports the error.
        end_ = ahead.head_ + (next == Next::garbage ? record_header_bytes : 0);
    }

  private:
    [[nodiscard]] std::uint64_t offset() const noexcept { return head_ & (ring_.size - 1); }

    /// @param header  a copy of the header. The other process could change the header in the ring
    ///     between the check and the use
    [[nodiscard]] Next parse(std::uint64_t header, std::span<const std::byte>& record) noexcept {
        constexpr std::uint64_t data = record_header(0, RecordKind::data);
        if (head_ >= end_) [[unlikely]] {
            return Next::nothing;
        }
        if (header >> 32U == static_cast<std::uint32_t>(RecordKind::skip)) [[unlikely]] {
            // A skip header must end exactly at the end of the ring. A record at the start of the
            // ring must follow it, because the producer publishes both together.
            const std::uint64_t to_end = ring_.size - offset();
            if (offset() == 0 || (header & 0xffffffffU) + record_header_bytes != to_end) {
                return Next::garbage;
            }
            head_ += to_end;
            header = ring_.header(0).load(std::memory_order_relaxed);
        }
        // If the header has another kind than "data", this difference exceeds every valid length.
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
    /// The position at which freeze() ends the consumption of records.
    std::uint64_t end_ = ~std::uint64_t{0};
    /// Number of bytes that the current record occupies in the ring.
    std::uint64_t step_ = 0;
};

} // namespace softverbs::fabric
