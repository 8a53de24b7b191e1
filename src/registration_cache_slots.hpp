// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <rdmabuf/detail/cached_registration.hpp>
#include <rdmabuf/registration.hpp>

#include "registration_cache_platform.hpp"

namespace rdmabuf::detail {

class CacheCore;
struct AccessClass;

/// Where an entry is kept, and after it the next. A thread that gives a lease back looks at it when
/// the entry may be gone already, so it lives as long as the cache's core.
struct alignas(64) CacheSlot : CachedRegistration {
    explicit CacheSlot(LeaseState<Platform>::Count* counts) noexcept : leases(counts) {}

    LeaseState<Platform> leases;
    /// CacheCore::clock when it was last found.
    std::atomic<std::uint64_t> used{0};

    // What hits do not read.
    CacheCore* core = nullptr;
    AccessClass* access_class = nullptr;
    std::vector<CacheKeys> several = {};
    std::optional<Registration> registration = std::nullopt;
    /// Whose generation can be compared, if that can be done; of those that the resolver holds.
    const Exporter* exporter = nullptr;
    std::uint64_t generation = 0;
    /// Nobody can say whose memory it is, or it is of more than one allocation.
    bool mixed = false;
    /// Is deregistered with the last lease.
    bool watched = false;
    /// In the list of free slots, or of entries to be destroyed.
    CacheSlot* next = nullptr;
};

/// The slots of a cache. All but the constructor with the cache's lock held.
class SlotPool {
  public:
    explicit SlotPool(CacheCore& core) noexcept : core_(core) {}

    /// One that is free. @throws Error ENOMEM, std::bad_alloc
    [[nodiscard]] CacheSlot& take();
    void put(CacheSlot& slot) noexcept;

    [[nodiscard]] std::size_t size() const noexcept {
        return chunks_.empty()
                   ? 0
                   : (chunks_.size() - 1) * Platform::stride + chunks_.back()->slots.size();
    }
    /// All there have ever been.
    template <class Visit>
    void for_each(Visit visit) const {
        for (const auto& chunk : chunks_) {
            for (const auto& slot : chunk->slots) {
                visit(*slot);
            }
        }
    }

  private:
    /// Zeroed pages that take no memory before they are used.
    class Pages {
      public:
        explicit Pages(std::size_t size);
        ~Pages();
        Pages(const Pages&) = delete;
        Pages& operator=(const Pages&) = delete;
        [[nodiscard]] void* get() const noexcept { return pages_; }

      private:
        void* pages_;
        std::size_t size_;
    };
    struct Chunk {
        Chunk();
        Pages counts;
        std::vector<std::unique_ptr<CacheSlot>> slots;
    };

    CacheCore& core_;
    std::vector<std::unique_ptr<Chunk>> chunks_;
    CacheSlot* free_ = nullptr;
};

} // namespace rdmabuf::detail
