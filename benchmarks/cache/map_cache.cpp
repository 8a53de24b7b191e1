// SPDX-License-Identifier: BSD-3-Clause
#include <iterator>
#include <map>
#include <mutex>

#include "contender.hpp"

namespace {

class MapCache final : public Contender {
  public:
    explicit MapCache(const Memory& memory) : memory_(memory) {
        for (std::uint32_t i = 0; i < memory.entries; ++i) {
            entries_.emplace(memory.address(i),
                             Entry{.end = memory.address(i) + Memory::piece, .lkey = i});
        }
    }

    std::uint32_t hit(long times, std::uint32_t seed) override {
        Sequence sequence(seed);
        std::uint32_t keys = 0;
        for (long i = 0; i < times; ++i) {
            Entry* const entry = get(memory_.address(sequence.next(memory_.entries)));
            keys ^= entry->lkey;
            put(*entry);
        }
        return keys;
    }

  private:
    struct Entry {
        std::uintptr_t end;
        std::uint32_t lkey;
        unsigned leases = 0;
    };

    Entry* get(std::uintptr_t address) {
        const std::scoped_lock lock(mutex_);
        const auto after = entries_.upper_bound(address);
        if (after == entries_.begin()) {
            return nullptr;
        }
        Entry& entry = std::prev(after)->second;
        if (entry.end < address + Memory::piece) {
            return nullptr;
        }
        ++entry.leases;
        return &entry;
    }
    void put(Entry& entry) {
        const std::scoped_lock lock(mutex_);
        --entry.leases;
    }

    Memory memory_;
    std::mutex mutex_;
    std::map<std::uintptr_t, Entry> entries_;
};

} // namespace

std::unique_ptr<Contender> make_map_cache(const Memory& memory) {
    return std::make_unique<MapCache>(memory);
}
