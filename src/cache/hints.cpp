// SPDX-License-Identifier: BSD-3-Clause
#include "cache/hints.hpp"

#include "cache/entries.hpp"

namespace rdmabuf::detail {
namespace {

constexpr unsigned least_bits = 8;
/// The largest table has 2^20 hints (pointers to cache entries), which need 8 MiB.
constexpr unsigned most_bits = 20;
/// If all places in the table for a new hint are in use, only one in this number of insertions
/// replaces an old hint. The other insertions do nothing.
constexpr unsigned replacement_interval = 64;

} // namespace

EntryHints::EntryHints(RetireList& retire_list)
    : retire_list_(retire_list),
      bits_(least_bits),
      table_(std::make_unique<Table>(least_bits).release()) {}

EntryHints::~EntryHints() {
    delete table_.load(std::memory_order_relaxed); // NOLINT(cppcoreguidelines-owning-memory)
}

void EntryHints::learn(std::uintptr_t address, Access access, CacheEntry& entry) noexcept {
    static constinit thread_local unsigned refused = 0;
    const auto pointer = reinterpret_cast<std::uintptr_t>(&entry);
    if (pointer << tag_bits >> tag_bits != pointer) {
        return;
    }
    const Place place(address, access);
    const Table& table = *table_.load(std::memory_order_seq_cst);
    std::size_t way = 0;
    for (; way < ways; ++way) {
        const CacheEntry* const other =
            entry_of(table.at(place, way).load(std::memory_order_acquire));
        if (other == nullptr || !other->is_found()) {
            break;
        }
    }
    if (way == ways) {
        if (++refused % replacement_interval != 0) {
            return;
        }
        way = (refused / replacement_interval) % ways;
    }
    table.at(place, way)
        .store(pointer << tag_bits | static_cast<std::uint16_t>(place.key),
               std::memory_order_release);
}

bool EntryHints::fit(std::size_t entries) {
    unsigned bits = bits_;
    // Up to its largest size, the table has at least four places for each cache entry, because hash
    // values collide and an entry can have hints for several addresses.
    while (bits < most_bits && entries * 4 > (std::size_t{1} << bits)) {
        ++bits;
    }
    if (bits == bits_) {
        return false;
    }
    auto next = std::make_unique<Table>(bits);
    bits_ = bits;
    retire_list_.put(std::unique_ptr<Table>(table_.exchange(next.release())));
    return true;
}

} // namespace rdmabuf::detail
