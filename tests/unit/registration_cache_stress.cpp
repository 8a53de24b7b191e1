// SPDX-License-Identifier: BSD-3-Clause
// Threads that acquire, keep, hand over, invalidate and evict, on memory whose allocations change
// beneath them. What a lease has must be registered for as long as it is held, and be of the
// allocation that was there; in the end nothing may be left. Most of what can go wrong only a
// sanitizer sees.
#include <softverbs/softverbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/registration_cache.hpp>

namespace {

using namespace rdmabuf;
using Lease = RegistrationCache::Lease;

constexpr unsigned thread_count = 8;
constexpr std::size_t buffer_count = 24;
constexpr std::size_t buffer_size = 65536;

/// Memory of other exporters, whose generations change when a test says so.
class AgingExporter final : public Exporter {
  public:
    explicit AgingExporter(std::shared_ptr<Allocator> memory) : memory_(std::move(memory)) {
        for (auto& generation : generations_) {
            generation = 1;
        }
        for (std::size_t i = 0; i < buffer_count; ++i) {
            buffers_.push_back(memory_->allocate(buffer_size));
        }
    }

    [[nodiscard]] std::string_view name() const noexcept override { return "aging"; }
    [[nodiscard]] Availability availability() const override { return Availability::yes(); }
    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const override {
        for (std::size_t i = 0; i < buffer_count; ++i) {
            if (address - base(i) < buffer_size) {
                return Allocation{.base = base(i),
                                  .length = buffer_size,
                                  .generation = generations_[i].load(),
                                  .kind = MemoryKind::device};
            }
        }
        return std::nullopt;
    }
    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping) const override {
        return memory_->export_range(address, length, mapping);
    }

    [[nodiscard]] std::uintptr_t base(std::size_t i) const noexcept {
        return buffers_[i].address();
    }
    [[nodiscard]] std::uint64_t generation(std::size_t i) const noexcept {
        return generations_[i].load();
    }
    /// What was there is freed, and something else is there.
    void age(std::size_t i) noexcept { ++generations_[i]; }

  private:
    std::shared_ptr<Allocator> memory_;
    std::vector<Buffer> buffers_;
    std::array<std::atomic<std::uint64_t>, buffer_count> generations_;
};

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "registration_cache_stress: %s\n", what);
    std::abort();
}
void require(bool holds, const char* what) {
    if (!holds) {
        fail(what);
    }
}

/// Leases on their way from one thread to another.
class Exchange {
  public:
    Lease swap(std::size_t i, Lease lease) {
        const std::scoped_lock lock(mutex_);
        std::swap(leases_[i % leases_.size()], lease);
        return lease;
    }

  private:
    std::mutex mutex_;
    std::array<Lease, 32> leases_;
};

struct Shared {
    ProtectionDomain pd;
    std::shared_ptr<AgingExporter> exporter;
    CachePolicy policy;
    /// Is replaced now and then, while its leases live on.
    std::shared_ptr<RegistrationCache> cache;
    std::mutex cache_mutex;
    Exchange exchange;

    [[nodiscard]] std::shared_ptr<RegistrationCache> make_cache() const {
        return std::make_shared<RegistrationCache>(
            pd, Resolver({exporter}),
            RegistrationCacheOptions{
                .policy = policy, .max_entries = 40, .max_bytes = 10 * buffer_size});
    }
};

/// What the NIC would do with the keys.
void use(const Lease& lease) {
    require(lease.lkey() == lease.registration().native()->lkey, "another key than the region's");
    require(lease.length() == lease.registration().length(), "another length than the region's");
}

void work(Shared& shared, unsigned seed, std::uint64_t operations) {
    std::uint32_t random = seed;
    const auto below = [&](std::uint32_t limit) {
        random = random * 1664525U + 1013904223U;
        return (random >> 8U) % limit;
    };
    for (std::uint64_t done = 0; done < operations; ++done) {
        const std::shared_ptr<RegistrationCache> cache = [&] {
            const std::scoped_lock lock(shared.cache_mutex);
            if (below(2000) == 0) {
                shared.cache = shared.make_cache();
            }
            return shared.cache;
        }();
        const std::size_t i = below(buffer_count);
        const std::size_t offset = std::size_t{below(4)} * 12288;
        const std::size_t length = 1 + below(16384);
        const std::uintptr_t address = shared.exporter->base(i) + offset;
        const Access access = below(3) == 0 ? full_access : Access::local_write;
        const std::uint32_t what = below(100);
        if (what < 4) {
            shared.exporter->age(i);
            if (shared.policy == CachePolicy::explicit_invalidation) {
                cache->invalidate(shared.exporter->base(i), buffer_size);
            }
        } else if (what < 6) {
            cache->invalidate(address, length);
        } else if (what == 6 && below(50) == 0) {
            cache->clear();
        } else {
            const std::uint64_t before = shared.exporter->generation(i);
            Lease lease = what < 50 ? cache->acquire(address, length, access)
                                    : cache->find(address, length, access);
            if (!lease) {
                continue;
            }
            use(lease);
            require(
                lease.address() <= address && address + length <= lease.address() + lease.length(),
                "an entry that does not hold what was asked for");
            require(has(lease.access(), access), "an entry that does not allow what was asked for");
            require(shared.policy != CachePolicy::checked ||
                        lease.registration().allocation()->generation >= before,
                    "an entry of memory that was gone before it was asked for");
            if (below(3) == 0) {
                lease = shared.exchange.swap(below(32), std::move(lease));
                if (lease) {
                    use(lease);
                }
            }
        }
    }
}

void run(CachePolicy policy, std::uint64_t operations) {
    const Context context = Context::open_first();
    const auto memory = make_memfd_exporter();
    Shared shared{.pd = ProtectionDomain(context),
                  .exporter = std::make_shared<AgingExporter>(memory),
                  .policy = policy,
                  .cache = nullptr,
                  .cache_mutex = {},
                  .exchange = {}};
    shared.cache = shared.make_cache();
    {
        std::vector<std::jthread> threads;
        for (unsigned i = 0; i < thread_count; ++i) {
            threads.emplace_back([&shared, i, operations] { work(shared, i + 1, operations); });
        }
    }
    const auto statistics = shared.cache->statistics();
    std::printf(
        "%s: the last cache: %lu hits, %lu misses, %lu evictions, "
        "%lu stale, %lu invalidated, %lu merged\n",
        policy == CachePolicy::checked ? "checked" : "explicit", statistics.hits, statistics.misses,
        statistics.evictions, statistics.stale, statistics.invalidations, statistics.merges);
    for (std::size_t i = 0; i < 32; ++i) {
        shared.exchange.swap(i, Lease());
    }
    require(shared.cache->statistics().entries == softverbs_live(SOFTVERBS_MR),
            "other entries than there are regions");
    shared.cache->clear();
    require(shared.cache->statistics().bytes == 0, "bytes of no entry");
    require(softverbs_live(SOFTVERBS_MR) == 0, "regions are left");
}

} // namespace

int main(int argc, char** argv) {
    const std::uint64_t operations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20'000;
    try {
        run(CachePolicy::explicit_invalidation, operations);
        run(CachePolicy::checked, operations);
    } catch (const std::exception& error) {
        fail(error.what());
    }
    return EXIT_SUCCESS;
}
