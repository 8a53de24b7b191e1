// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "fabric/connection.hpp"

namespace softverbs::fabric {

/// A ring of bytes in shared memory, which contains records (requests or responses). One process is
/// the producer, and another process is the consumer.
///
/// A record consists of a header of 8 bytes (length and kind) and its bytes, padded to a multiple
/// of 8. A record does not wrap around. If it does not fit before the end of the ring, the producer
/// writes a header of the kind "skip" at its position, and writes the record at the start of the
/// ring.
///
/// A header is 0 until its record is complete. Before the producer writes the header of a record,
/// it writes 0 to the position after the record. So the consumer finds a new record by polling the
/// header at its own position. The head is the number of bytes that were consumed since the ring
/// was created.
///
/// Both processes can write to the whole ring at any time. Therefore each process trusts only its
/// own position. It loads a word of the other process only once, and checks the loaded value before
/// it uses the value.

inline constexpr std::size_t record_header_bytes = 8;

/// Returns the number of bytes that a record with @p length bytes of data occupies in the ring,
/// including its header and padding.
[[nodiscard]] constexpr std::uint64_t record_bytes(std::uint64_t length) noexcept {
    return record_header_bytes + ((length + 7) & ~std::uint64_t{7});
}

/// The kind of a record in the ring, stored in the header of the record. No kind has the value 0,
/// because a header of 0 means "no record yet".
enum class RecordKind : std::uint32_t { data = 1, skip = 2 };

[[nodiscard]] constexpr std::uint64_t record_header(std::uint64_t length,
                                                    RecordKind kind) noexcept {
    return length | std::uint64_t{static_cast<std::uint32_t>(kind)} << 32U;
}

/// The addresses of the ring and of its head (the number of consumed bytes) in shared memory. The
/// producer and the consumer each have their own RingMemory object.
struct RingMemory {
    std::byte* bytes;
    /// Size of the ring in bytes, a power of two.
    std::uint64_t size;
    /// The head: number of bytes that were consumed since the ring was created. Only the consumer
    /// changes it.
    std::atomic<std::uint64_t>* head;

    [[nodiscard]] std::atomic_ref<std::uint64_t> header(std::uint64_t position) const noexcept {
        auto* const word = reinterpret_cast<std::uint64_t*>(bytes + (position & (size - 1)));
        return std::atomic_ref<std::uint64_t>(*word);
    }
};

class RingProducer {
  public:
    enum class Room {
        enough,
        not_now,
        /// The consumer has written an invalid value to the head of the ring (the number of
        /// consumed bytes).
        garbage,
    };

    explicit RingProducer(const RingMemory& ring) noexcept : ring_(ring) {}

    /// Returns whether a record of @p length bytes fits into the ring now, or Room::garbage if the
    /// consumer has written an invalid head (number of consumed bytes). A record that is longer
    /// than about half of the ring may never fit.
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

    /// Returns the address to which the caller must write the bytes of the next record. Must be
    /// called after room() has returned Room::enough for the same length. After the caller has
    /// written the bytes, it publishes the record with commit().
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
        // This store publishes the record. After this store, the producer loads the flag with which
        // the consumer reports that it sleeps. The consumer first sets this flag and then loads
        // this header. These accesses are sequentially consistent. Therefore the producer sees the
        // flag, or the consumer sees the record, and no wakeup is lost.
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
    /// Offset in bytes. If the producer has passed this offset and the ring is empty, the producer
    /// continues at the start of the ring. So if the consumer is fast, only the first pages of the
    /// ring are used, and these pages stay in the CPU cache.
    static constexpr std::uint64_t first_return = std::uint64_t{8} * 1024;
    static constexpr std::uint64_t return_step = std::uint64_t{4} * 1024;

    [[nodiscard]] std::uint64_t offset() const noexcept { return tail_ & (ring_.size - 1); }
    [[nodiscard]] std::uint64_t skipped(std::uint64_t needed) const noexcept {
        const std::uint64_t to_end = ring_.size - offset();
        return needed > to_end || returns_ ? to_end : 0;
    }
    [[nodiscard]] std::uint64_t needed_for(std::size_t length) const noexcept {
        const std::uint64_t size = record_bytes(length);
        // Include space for the header of the next record, because commit() writes 0 to that
        // header.
        return size + skipped(size) + record_header_bytes;
    }
    /// Loads the head of the ring (the number of consumed bytes), which the consumer changes.
    /// Returns false if its value is invalid.
    [[nodiscard]] bool read_head() noexcept {
        const std::uint64_t head = ring_.head->load(std::memory_order_seq_cst);
        if (head - head_ > tail_ - head_ || head % 8 != 0) {
            return false;
        }
        head_ = head;
        return true;
    }
    /// Decides whether the next record, which occupies @p size bytes, is written at the start of
    /// the ring, and stores the decision in returns_. Returns false if the head of the ring (the
    /// number of consumed bytes) is invalid.
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
    /// The head of the ring (the number of consumed bytes) when the producer last loaded it.
    std::uint64_t head_ = 0;
    /// An offset in the ring, in bytes. After the producer has written beyond this offset, it
    /// checks whether the ring is empty. If the ring is empty, the producer writes the next record
    /// at the start of the ring.
    std::uint64_t next_return_ = first_return;
    bool returns_ = false;
};

class RingConsumer {
  public:
    enum class Next {
        record,
        nothing,
        /// The producer has written an invalid header of a record.
        garbage,
    };

    /// @param longest  maximum length of a record in bytes
    RingConsumer(const RingMemory& ring, std::size_t longest) noexcept
        : ring_(ring), longest_(longest) {}

    /// If the ring contains a record, stores a view of the oldest record in @p record. The view is
    /// valid until pop() is called.
    [[nodiscard]] Next next(std::span<const std::byte>& record) noexcept {
        const std::uint64_t header = ring_.header(head_).load(std::memory_order_acquire);
        if (header == 0) {
            return Next::nothing;
        }
        return parse(header, record);
    }

    /// Removes from the ring the record that next() has returned.
    void pop() noexcept {
        head_ += step_;
        step_ = 0;
        ring_.head->store(head_, std::memory_order_release);
    }

    /// Stores the head of the ring (the number of consumed bytes) again, with sequential
    /// consistency. Called after the last pop() of a batch, before the consumer loads the flag that
    /// a producer sets when it waits for room. Therefore the producer sees the new head, or the
    /// consumer sees the flag.
    void settle() noexcept { ring_.head->store(head_, std::memory_order_seq_cst); }

    /// Returns whether the ring contains no record. A consumer that is about to sleep must first
    /// set the flag Direction::sleeping and then call this function. The store of the flag and the
    /// load in this function are sequentially consistent, so that the load is not executed before
    /// the store.
    [[nodiscard]] bool empty() const noexcept {
        return head_ >= end_ || ring_.header(head_).load(std::memory_order_seq_cst) == 0;
    }

    /// Called when the producer has closed the connection. Records that are published after this
    /// call are ignored, even if a process still writes to the memory.
    void freeze() noexcept {
        RingConsumer ahead = *this;
        std::span<const std::byte> record;
        // Limit the loop to the size of the ring. Otherwise it might never end, because the
        // producer may still be writing records.
        const std::uint64_t limit = head_ + ring_.size;
        Next next = Next::record;
        while (ahead.head_ < limit && (next = ahead.next(record)) == Next::record) {
            ahead.head_ += ahead.step_;
        }
        // If the header after the last record is invalid, set end_ to the position after this
        // header, so that next() reads the header and reports the error.
        end_ = ahead.head_ + (next == Next::garbage ? record_header_bytes : 0);
    }

  private:
    [[nodiscard]] std::uint64_t offset() const noexcept { return head_ & (ring_.size - 1); }

    /// @param header  a copy of the record's header; the other process could change the header in
    ///     the ring after this function has checked it
    [[nodiscard]] Next parse(std::uint64_t header, std::span<const std::byte>& record) noexcept {
        constexpr std::uint64_t data = record_header(0, RecordKind::data);
        if (head_ >= end_) [[unlikely]] {
            return Next::nothing;
        }
        if (header >> 32U == static_cast<std::uint32_t>(RecordKind::skip)) [[unlikely]] {
            // The bytes that a "skip" header skips must end exactly at the end of the ring. A
            // record must follow at the start of the ring, because the producer publishes the
            // "skip" header and this record together.
            const std::uint64_t to_end = ring_.size - offset();
            if (offset() == 0 || (header & 0xffffffffU) + record_header_bytes != to_end) {
                return Next::garbage;
            }
            head_ += to_end;
            header = ring_.header(0).load(std::memory_order_relaxed);
        }
        // The header of a data record is the constant "data" plus the length. For other kinds of
        // records, the unsigned result is larger than every valid length.
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
    /// Records from this position on are ignored. The position is a number of bytes since the ring
    /// was created; freeze() sets it.
    std::uint64_t end_ = ~std::uint64_t{0};
    /// Size in bytes, with header and padding, of the record that next() has returned.
    std::uint64_t step_ = 0;
};

} // namespace softverbs::fabric
