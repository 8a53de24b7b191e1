// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rdmabuf::transport::detail {

class ChannelState;

/// A hash table that finds a channel by the number of one of its queue pairs. Each device has its
/// own table. The completions in a shared completion queue identify the queue pair only by this
/// number.
class QueuePairTable {
  public:
    /// Never a queue pair number, because these have 24 bits.
    static constexpr std::uint32_t no_number = 0xffffffff;
    struct Entry {
        /// The queue pair number; `no_number` if the entry is empty.
        std::uint32_t number = no_number;
        /// The index of the queue pair in its channel.
        std::uint16_t rail = 0;
        /// True if the entry is not empty and `rail` is 0.
        bool is_first = false;
        ChannelState* channel = nullptr;
    };

    QueuePairTable() : entries_(min_size) {}

    /// @throws std::bad_alloc
    void add(std::uint32_t number, ChannelState& channel, std::uint32_t rail) {
        if ((count_ + 1) * 2 > entries_.size()) {
            std::vector<Entry> old(entries_.size() * 2);
            old.swap(entries_);
            mask_ = entries_.size() - 1;
            for (const Entry& entry : old) {
                if (entry.channel != nullptr) {
                    entries_[slot_of(entry.number)] = entry;
                }
            }
        }
        entries_[slot_of(number)] = {.number = number,
                                     .rail = static_cast<std::uint16_t>(rail),
                                     .is_first = rail == 0,
                                     .channel = &channel};
        ++count_;
    }
    void remove(std::uint32_t number) noexcept {
        std::size_t hole = slot_of(number);
        if (entries_[hole].channel == nullptr) {
            return;
        }
        entries_[hole] = {};
        --count_;
        // Add again the entries that follow the removed entry (the hole). Otherwise find() would
        // stop at the hole and would not reach these entries.
        for (std::size_t i = next(hole); entries_[i].channel != nullptr; i = next(i)) {
            const Entry entry = entries_[i];
            entries_[i] = {};
            entries_[slot_of(entry.number)] = entry;
        }
    }
    /// Returns the entry of the queue pair with this number. Its `channel` is nullptr if the table
    /// does not contain the queue pair.
    [[nodiscard]] const Entry& find(std::uint32_t number) const noexcept {
        return entries_[slot_of(number)];
    }
    /// Returns the entry at which the search for this queue pair number begins. If this entry has
    /// another number, the caller must call find().
    [[nodiscard]] const Entry& first(std::uint32_t number) const noexcept {
        return entries_[first_slot(number)];
    }

  private:
    static constexpr std::size_t min_size = 64;

    [[nodiscard]] std::size_t next(std::size_t slot) const noexcept { return (slot + 1) & mask_; }
    /// Returns the index of the table entry at which the search for this queue pair number begins.
    [[nodiscard]] std::size_t first_slot(std::uint32_t number) const noexcept {
        // Many devices assign consecutive numbers. The lower bits then differ, and are a good hash
        // value.
        return number & mask_;
    }
    /// Returns the index of the table entry for this queue pair number. If the table does not
    /// contain the number, returns the index of the empty entry where it can be added.
    [[nodiscard]] std::size_t slot_of(std::uint32_t number) const noexcept {
        std::size_t slot = first_slot(number);
        while (entries_[slot].channel != nullptr && entries_[slot].number != number) {
            slot = next(slot);
        }
        return slot;
    }

    std::vector<Entry> entries_;
    /// The number of table entries minus 1. The number of entries is a power of 2, so this is the
    /// bit mask for an index in the table.
    std::size_t mask_ = min_size - 1;
    std::size_t count_ = 0;
};

} // namespace rdmabuf::transport::detail
