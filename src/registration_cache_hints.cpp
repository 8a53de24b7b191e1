// SPDX-License-Identifier: BSD-3-Clause
#include "registration_cache_hints.hpp"

#include "registration_cache_slots.hpp"

namespace rdmabuf::detail {
namespace {

constexpr unsigned least_bits = 5;
/// 8 MiB.
constexpr unsigned most_bits = 17;
/// How many times learning without room is in vain, for once that it is not.
constexpr unsigned reluctance = 64;

} // namespace

EntryHints::EntryHints(Limbo& limbo)
    : limbo_(limbo), bits_(least_bits), table_(std::make_unique<Table>(least_bits).release()) {}

EntryHints::~EntryHints() {
    delete table_.load(std::memory_order_relaxed); // NOLINT(cppcoreguidelines-owning-memory)
}

void EntryHints::learn(std::uintptr_t address, Access access, CacheSlot& slot) noexcept {
    static constinit thread_local unsigned refused = 0;
    const std::uint64_t key = key_of(address, access);
    Set& set = table_.load(std::memory_order_seq_cst)->of(key);
    std::size_t way = 0;
    for (; way < ways; ++way) {
        const CacheSlot* const other = set.slots[way].load(std::memory_order_acquire);
        if (other == nullptr || !other->is_found()) {
            break;
        }
    }
    if (way == ways) {
        if (++refused % reluctance != 0) {
            return;
        }
        way = (refused / reluctance) % ways;
    }
    set.slots[way].store(&slot, std::memory_order_release);
    set.keys[way].store(key, std::memory_order_relaxed);
}

void EntryHints::fit(std::size_t entries) {
    unsigned bits = bits_;
    // Half of the room is left for chance, and for entries with several hints.
    while (bits < most_bits && entries * 2 > (ways << bits)) {
        ++bits;
    }
    if (bits != bits_) {
        auto next = std::make_unique<Table>(bits);
        bits_ = bits;
        limbo_.put(std::unique_ptr<Table>(table_.exchange(next.release())));
    }
}

} // namespace rdmabuf::detail
