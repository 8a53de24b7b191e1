// SPDX-License-Identifier: BSD-3-Clause
#include "objects/key_table.hpp"

#include <time.h>
#include <unistd.h>

#include <new>

#include "fabric/random.hpp"

namespace softverbs {
namespace {

constexpr unsigned half_bits = 12; // half the width of a name (the upper 24 bits of a key)
constexpr std::uint32_t half_mask = (1U << half_bits) - 1;
constexpr std::uint32_t name_mask = (1U << (2 * half_bits)) - 1;
constexpr std::size_t max_used = std::size_t{1} << (2 * half_bits - 1);

std::uint32_t mix(std::uint32_t value) {
    value = (value ^ (value >> 16U)) * 0x7feb352dU;
    value = (value ^ (value >> 15U)) * 0x846ca68bU;
    return value ^ (value >> 16U);
}

} // namespace

KeyTable::KeyTable() : entries_(64), mask_(entries_.size() - 1) {
    if (!fabric::fill_random(std::as_writable_bytes(std::span(secrets_)), GRND_NONBLOCK)) {
        // Without random numbers, the keys are predictable. This is acceptable, because keys detect
        // errors and do not protect against attackers.
        secrets_[0] = static_cast<std::uint32_t>(::getpid());
        secrets_[1] = static_cast<std::uint32_t>(fabric::now_ns());
    }
}

bool KeyTable::reserve() noexcept {
    if (used_ >= max_used) {
        return false;
    }
    if ((used_ + 1) * 2 > entries_.size()) {
        try {
            grow();
        } catch (const std::bad_alloc&) {
            return false;
        }
    }
    return true;
}

bool KeyTable::add(std::uint32_t name, Grant& grant) noexcept {
    Entry& entry = entries_[place(name)];
    if (name == 0 || entry.name != 0) {
        return false;
    }
    entry = {name, &grant};
    ++used_;
    return true;
}

bool KeyTable::insert_foreign(Grant& grant) noexcept {
    return reserve() && add(grant.lkey >> variant_bits, grant);
}

std::uint32_t KeyTable::insert(Grant& grant) noexcept {
    if (!reserve()) {
        return 0;
    }
    std::uint32_t key = 0;
    do {
        key = next_key();
    } while (!add(key >> variant_bits, grant));
    return key;
}

void KeyTable::erase(std::uint32_t key) noexcept {
    std::size_t hole = place(key >> variant_bits);
    if (entries_[hole].name == 0) {
        return;
    }
    --used_;
    // The removed entry leaves a hole in the hash table, at which a search would end too early.
    // Move the next entry whose search passes the hole into the hole. Its old position is a new
    // hole. Repeat this until no entry needs to be moved.
    for (std::size_t next = (hole + 1) & mask_; entries_[next].name != 0;
         next = (next + 1) & mask_) {
        const std::size_t home = entries_[next].name & mask_;
        if (((next - home) & mask_) >= ((next - hole) & mask_)) {
            entries_[hole] = entries_[next];
            hole = next;
        }
    }
    entries_[hole] = {};
}

Grant* KeyTable::owner(std::uint32_t key) const noexcept {
    return entries_[place(key >> variant_bits)].grant;
}

std::uint32_t KeyTable::next_key() noexcept {
    const std::uint32_t number = counter_++;
    // Use each index (the upper 24 bits of the key) once before any index is used again. The
    // variant (the low 8 bits of the key) is random, so a reused index usually gives another key.
    const std::uint32_t variant = mix(number ^ secrets_[0]) >> (32U - variant_bits);
    return permute(number & name_mask) << variant_bits | variant;
}

std::uint32_t KeyTable::permute(std::uint32_t number) const noexcept {
    std::uint32_t left = number >> half_bits;
    std::uint32_t right = number & half_mask;
    // A Feistel network permutes the indices, so that consecutive keys look random.
    for (const std::uint32_t secret : secrets_) {
        const std::uint32_t next = left ^ (mix(right + secret) & half_mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

std::size_t KeyTable::place(std::uint32_t name) const noexcept {
    std::size_t index = name & mask_;
    while (entries_[index].name != 0 && entries_[index].name != name) {
        index = (index + 1) & mask_;
    }
    return index;
}

void KeyTable::grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    mask_ = entries_.size() - 1;
    for (const Entry& entry : old) {
        if (entry.name != 0) {
            entries_[place(entry.name)] = entry;
        }
    }
}

} // namespace softverbs
