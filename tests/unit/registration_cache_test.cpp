// SPDX-License-Identifier: BSD-3-Clause
// RegistrationCache on softverbs: what hits, what misses, and what becomes of entries.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/topology.hpp>

#include "registration_cache_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::error_of;
using testing::fails_with;
using testing::RegistrationCacheTest;
using Lease = RegistrationCache::Lease;

constexpr Access writable = testing::writable_access;
constexpr const char* function = "RegistrationCache";

// Hits

TEST_F(RegistrationCacheTest, RegistersOnceWhatIsAcquiredTwice) {
    RegistrationCache cache = this->cache();
    const Lease first = cache.acquire(at(4096), 8192, writable);
    const Lease second = cache.acquire(at(4096), 8192, writable);
    EXPECT_EQ(registrations().size(), 1U);
    EXPECT_EQ(live(), 1U);
    EXPECT_EQ(first.lkey(), second.lkey());
    EXPECT_EQ(first.lkey(), first.registration().lkey());
    EXPECT_EQ(first.address(), at(4096));
    EXPECT_EQ(first.iova(), at(4096));
    EXPECT_EQ(first.length(), 8192U);
    EXPECT_EQ(first.access(), writable);
    EXPECT_EQ(first.remote(), first.registration().remote());
    EXPECT_EQ(cache.statistics().hits, 1U);
    EXPECT_EQ(cache.statistics().misses, 1U);
    EXPECT_EQ(cache.statistics().entries, 1U);
    EXPECT_EQ(cache.statistics().bytes, 8192U);
}

TEST_F(RegistrationCacheTest, FindsWhatLiesInsideOfAnEntry) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(4096), 8192, writable).reset();
    EXPECT_TRUE(cache.find(at(4096), 1, writable));
    EXPECT_TRUE(cache.find(at(12287), 1, writable));
    EXPECT_TRUE(cache.find(at(5000), 7000, writable));
    EXPECT_FALSE(cache.find(at(4095), 1, writable));
    EXPECT_FALSE(cache.find(at(12288), 1, writable));
    EXPECT_FALSE(cache.find(at(4095), 100, writable));
    EXPECT_FALSE(cache.find(at(12000), 289, writable));
    EXPECT_FALSE(cache.find(at(5000), 0, writable));
    EXPECT_FALSE(cache.find(at(5000), ~std::size_t{0}, writable));
    EXPECT_EQ(cache.statistics().hits, 3U);
    EXPECT_EQ(cache.statistics().misses, 1U);
}

TEST_F(RegistrationCacheTest, ServesWithMoreAccessThanWasAskedFor) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(0), 4096, full_access).reset();
    EXPECT_EQ(cache.find(at(0), 4096, Access::local_write).access(), full_access);
    EXPECT_TRUE(cache.find(at(0), 4096, writable));
    EXPECT_TRUE(cache.find(at(0), 4096, Access::local_read));
    EXPECT_FALSE(cache.find(at(0), 4096, full_access | Access::memory_window_bind));
    EXPECT_FALSE(cache.find(at(0), 4096, writable | Access::relaxed_ordering));
    EXPECT_FALSE(cache.find(at(0), 4096, Access::local_write | Access::on_demand));

    cache.acquire(at(0), 4096, full_access | Access::relaxed_ordering).reset();
    EXPECT_TRUE(cache.find(at(0), 4096, writable | Access::relaxed_ordering));
    EXPECT_EQ(cache.find(at(0), 4096, writable).access(), full_access);
}

TEST_F(RegistrationCacheTest, FindsWhatHasTheAccessAmongEntriesOfTheSameRange) {
    RegistrationCache cache = this->cache();
    constexpr std::array accesses{Access::local_write | Access::remote_read,
                                  Access::local_write | Access::remote_write,
                                  Access::local_write | Access::remote_atomic};
    std::vector<Lease> leases;
    leases.reserve(accesses.size());
    for (const Access access : accesses) {
        leases.push_back(cache.acquire(at(4096), 4096, access));
    }
    for (int round = 0; round < 2; ++round) {
        for (std::size_t i = 0; i < accesses.size(); ++i) {
            EXPECT_EQ(cache.find(at(4096), 4096, accesses[i]).lkey(), leases[i].lkey());
        }
    }
    EXPECT_FALSE(cache.find(at(4096), 4096, accesses[0] | accesses[1]));
    EXPECT_EQ(live(), 3U);
}

TEST_F(RegistrationCacheTest, DoesNotTakeTheNextEntryOfASlotForTheOneBefore) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(4096), 4096, full_access).reset();
    EXPECT_TRUE(cache.find(at(4096), 4096, full_access));
    cache.clear();
    EXPECT_EQ(live(), 0U);
    cache.acquire(at(4096), 4096, Access::local_write).reset();
    EXPECT_FALSE(cache.find(at(4096), 4096, full_access));
    EXPECT_TRUE(cache.find(at(4096), 4096, Access::local_write));
}

TEST_F(RegistrationCacheTest, AddsRelaxedOrderingToEverything) {
    RegistrationCache cache = this->cache({.registration = {.relaxed_ordering = true}});
    const Lease lease = cache.acquire(at(0), 4096, writable);
    EXPECT_EQ(lease.access(), writable | Access::relaxed_ordering);
    EXPECT_TRUE(cache.find(at(0), 4096, writable));
    EXPECT_EQ(registrations().size(), 1U);
}

TEST_F(RegistrationCacheTest, HasTheKeysOfSeveralProtectionDomains) {
    const std::array pds{basics_.pd, ProtectionDomain(basics_.context),
                         ProtectionDomain(basics_.context)};
    RegistrationCache cache(pds, resolver_);
    const Lease lease = cache.acquire(at(0), 4096, writable);
    EXPECT_EQ(live(), 3U);
    EXPECT_EQ(exporter_->exports.size(), 1U);
    for (std::size_t i = 0; i < pds.size(); ++i) {
        EXPECT_EQ(lease.lkey(i), lease.registration().lkey(i));
        EXPECT_EQ(lease.remote(i), lease.registration().remote(i));
    }
    EXPECT_NE(lease.lkey(0), lease.lkey(2));
    EXPECT_EQ(cache.statistics().bytes, 4096U);
}

TEST_F(RegistrationCacheTest, TakesPointers) {
    RegistrationCache cache = this->cache();
    const Lease lease = cache.acquire(host_memory_.data(), 100, Access::local_write);
    EXPECT_EQ(lease.registration().path(), RegistrationPath::host);
    EXPECT_EQ(lease.address(), host());
}

TEST_F(RegistrationCacheTest, GivesLeasesBackWhenTheyAreMovedOver) {
    RegistrationCache cache = this->cache({.max_entries = 1});
    Lease first = cache.acquire(at(0), 4096, writable);
    Lease second = cache.acquire(at(8192), 4096, writable); // beyond the limit
    EXPECT_EQ(live(), 2U);
    second = std::move(first);
    EXPECT_EQ(live(), 1U);
    EXPECT_FALSE(first); // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(second.address(), at(0));
    second.reset();
    EXPECT_FALSE(second);
}

TEST_F(RegistrationCacheTest, FindsEachOfMoreEntriesThanOneBlockOfMemoryHas) {
    constexpr std::size_t count = 33000;
    constexpr std::size_t stride = 8192;
    void* const memory = ::mmap(nullptr, count * stride, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    const auto page = [memory](std::size_t i) {
        return reinterpret_cast<std::uintptr_t>(memory) + i * stride;
    };
    {
        RegistrationCache cache(basics_.pd, Resolver());
        for (std::size_t i = 0; i < count; ++i) {
            cache.acquire(page(i), 4096, writable).reset();
        }
        std::vector<Lease> leases;
        for (std::size_t i = 0; i < count; ++i) {
            leases.push_back(cache.find(page(i), 4096, writable));
            ASSERT_EQ(leases.back().address(), page(i));
        }
        EXPECT_EQ(cache.statistics().hits, count);
        cache.clear();
        EXPECT_EQ(live(), count) << "all are in use";
        EXPECT_FALSE(cache.find(page(0), 4096, writable));
        leases.clear();
        EXPECT_EQ(live(), 0U);
    }
    ::munmap(memory, count * stride);
}

TEST_F(RegistrationCacheTest, FindsAmongManyEntriesWhatASearchOfAllFinds) {
    // Two accesses, and ranges that overlap in every way.
    RegistrationCache cache = this->cache({.max_entries = 1000});
    std::uint32_t random = 1;
    const auto below = [&](std::uint32_t limit) {
        random = random * 1664525U + 1013904223U;
        return (random >> 8U) % limit;
    };
    std::vector<Lease> all;
    for (int i = 0; i < 3000; ++i) {
        const std::size_t offset = below(60000);
        const std::size_t length = 1 + below(i % 50 == 0 ? 5000 : 200);
        const Access access = below(2) == 0 ? Access::local_write : writable;
        const bool there = std::ranges::any_of(all, [&](const Lease& lease) {
            return lease.address() <= at(offset) && has(lease.access(), access) &&
                   at(offset) + length <= lease.address() + lease.length();
        });
        const Lease found = cache.find(at(offset), length, access);
        ASSERT_EQ(static_cast<bool>(found), there) << i;
        if (found) {
            ASSERT_LE(found.address(), at(offset));
            ASSERT_GE(found.address() + found.length(), at(offset) + length);
            ASSERT_TRUE(has(found.access(), access));
        } else if (below(4) != 0) {
            // What has a lease is not merged; a later one that holds it takes its place.
            std::erase_if(all, [&](const Lease& lease) {
                return lease.access() == access && lease.address() >= at(offset) &&
                       lease.address() + lease.length() <= at(offset) + length;
            });
            all.push_back(cache.acquire(at(offset), length, access));
        } else {
            const std::size_t gone = below(60000);
            cache.invalidate(at(gone), 300);
            std::erase_if(all, [&](const Lease& lease) {
                return lease.address() < at(gone) + 300 &&
                       lease.address() + lease.length() > at(gone);
            });
        }
    }
    EXPECT_GT(cache.statistics().hits, 300U);
    EXPECT_GT(cache.statistics().invalidations, 50U);
}

// Merging

TEST_F(RegistrationCacheTest, RegistersWhatTouchesAsOne) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(0), 4096, writable).reset();
    const Lease both = cache.acquire(at(4096), 4096, writable);
    EXPECT_EQ(both.address(), at(0));
    EXPECT_EQ(both.length(), 8192U);
    EXPECT_EQ(live(), 1U);
    EXPECT_EQ(cache.statistics().merges, 1U);
    EXPECT_EQ(cache.statistics().bytes, 8192U);
    EXPECT_TRUE(cache.find(at(4000), 200, writable));
}

TEST_F(RegistrationCacheTest, RegistersWhatOverlapsAsOne) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(4096), 8192, writable).reset();
    cache.acquire(at(20480), 8192, writable).reset();
    const Lease all = cache.acquire(at(8192), 16384, writable);
    EXPECT_EQ(all.address(), at(4096));
    EXPECT_EQ(all.length(), 24576U);
    EXPECT_EQ(live(), 1U);
    EXPECT_EQ(cache.statistics().merges, 2U);
}

TEST_F(RegistrationCacheTest, TakesThePlaceOfWhatItHolds) {
    RegistrationCache cache = this->cache();
    const Lease small = cache.acquire(at(4096), 4096, writable);
    cache.acquire(at(12288), 4096, writable).reset();
    const Lease large = cache.acquire(at(0), 65536, writable);
    EXPECT_EQ(live(), 2U) << "the one with a lease stays until that is given back";
    EXPECT_EQ(cache.find(at(4096), 1, writable).lkey(), large.lkey());
    EXPECT_NE(small.lkey(), large.lkey());
}

TEST_F(RegistrationCacheTest, DoesNotRegisterALongEntryAgainForAShortOne) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(0), 40960, writable).reset();
    const Lease lease = cache.acquire(at(40960), 4096, writable);
    EXPECT_EQ(lease.length(), 4096U);
    EXPECT_EQ(live(), 2U);
}

TEST_F(RegistrationCacheTest, RegistersTheBytesOfAStreamAFewTimesOnly) {
    RegistrationCache cache = this->cache();
    for (std::size_t offset = 0; offset < testing::registered_size; offset += 512) {
        cache.acquire(at(offset), 512, writable).reset();
    }
    std::size_t bytes = 0;
    for (const auto& registration : registrations()) {
        bytes += registration.length;
    }
    EXPECT_LE(cache.statistics().entries, 16U);
    EXPECT_LE(bytes, 8 * testing::registered_size) << "128 pieces";
}

TEST_F(RegistrationCacheTest, MergesNothingThatIsInUse) {
    RegistrationCache cache = this->cache();
    const Lease first = cache.acquire(at(0), 4096, writable);
    const Lease second = cache.acquire(at(4096), 4096, writable);
    EXPECT_EQ(second.address(), at(4096));
    EXPECT_EQ(live(), 2U);
}

TEST_F(RegistrationCacheTest, MergesNothingOfAnotherAllocation) {
    const auto other =
        std::make_shared<testing::FakeExporter>(testing::registered_size, at(0) + 65536);
    RegistrationCache cache(basics_.pd, Resolver({exporter_, other}));
    cache.acquire(at(61440), 4096, writable).reset();
    EXPECT_EQ(cache.acquire(at(65536), 4096, writable).address(), at(65536));
    EXPECT_EQ(cache.statistics().merges, 0U);
    // Nor of what was at its place before.
    exporter_->allocation.generation = 2;
    EXPECT_EQ(cache.acquire(at(57344), 4096, writable).length(), 4096U);
    EXPECT_EQ(cache.statistics().merges, 0U);
}

TEST_F(RegistrationCacheTest, RegistersWhatIsAskedForWhenTheMergedRangeFails) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(0), 4096, writable).reset();
    testing::fail_next("ibv_reg_dmabuf_mr", EFAULT);
    const Lease lease = cache.acquire(at(4096), 4096, writable);
    EXPECT_EQ(lease.address(), at(4096));
    EXPECT_EQ(lease.length(), 4096U);
    EXPECT_EQ(live(), 2U);
    EXPECT_EQ(cache.statistics().bytes, 8192U);
}

// Limits

TEST_F(RegistrationCacheTest, EvictsTheLeastRecentlyUsed) {
    RegistrationCache cache = this->cache({.max_entries = 3});
    cache.acquire(at(0), 1024, writable).reset();
    cache.acquire(at(8192), 1024, writable).reset();
    cache.acquire(at(16384), 1024, writable).reset();
    cache.find(at(0), 1, writable).reset();
    cache.acquire(at(24576), 1024, writable).reset();
    EXPECT_EQ(live(), 3U);
    EXPECT_EQ(cache.statistics().evictions, 1U);
    EXPECT_FALSE(cache.find(at(8192), 1, writable));
    EXPECT_TRUE(cache.find(at(16384), 1, writable));
    cache.acquire(at(32768), 1024, writable).reset();
    EXPECT_FALSE(cache.find(at(0), 1, writable));
    EXPECT_TRUE(cache.find(at(16384), 1, writable));
    EXPECT_TRUE(cache.find(at(24576), 1, writable));
}

TEST_F(RegistrationCacheTest, EvictsAsManyBytesAsItTakes) {
    RegistrationCache cache = this->cache({.max_bytes = 16384});
    for (std::size_t i = 0; i < 4; ++i) {
        cache.acquire(at(8192 * i), 4096, writable).reset();
    }
    EXPECT_EQ(cache.statistics().bytes, 16384U);
    cache.acquire(at(32768), 12288, writable).reset();
    EXPECT_EQ(cache.statistics().evictions, 3U);
    EXPECT_EQ(cache.statistics().bytes, 16384U);
    EXPECT_EQ(live(), 2U);
    EXPECT_TRUE(cache.find(at(24576), 4096, writable));
}

TEST_F(RegistrationCacheTest, NeverEvictsWhatIsInUse) {
    RegistrationCache cache = this->cache({.max_entries = 2});
    const Lease oldest = cache.acquire(at(0), 1024, writable);
    cache.acquire(at(8192), 1024, writable).reset();
    cache.acquire(at(16384), 1024, writable).reset();
    EXPECT_EQ(cache.find(at(0), 1024, writable).lkey(), oldest.lkey());
    EXPECT_FALSE(cache.find(at(8192), 1024, writable));
}

TEST_F(RegistrationCacheTest, RegistersBeyondTheLimitsForTheLeasesOnly) {
    RegistrationCache cache = this->cache({.max_entries = 2});
    std::vector<Lease> leases;
    for (std::size_t i = 0; i < 4; ++i) {
        leases.push_back(cache.acquire(at(8192 * i), 1024, writable));
    }
    EXPECT_EQ(live(), 4U);
    EXPECT_EQ(cache.statistics().entries, 4U);
    Lease another = cache.find(at(24576), 1024, writable);
    EXPECT_EQ(another.lkey(), leases[3].lkey());
    leases.clear();
    EXPECT_EQ(live(), 3U) << "one that is kept no longer than it is used still is used";
    another.reset();
    EXPECT_EQ(live(), 2U);
    EXPECT_EQ(cache.statistics().entries, 2U);
    EXPECT_EQ(cache.statistics().evictions, 0U);
}

TEST_F(RegistrationCacheTest, EvictsNothingForWhatIsLongerThanTheLimit) {
    RegistrationCache cache = this->cache({.max_bytes = 8192});
    cache.acquire(at(0), 4096, writable).reset();
    Lease longer = cache.acquire(at(16384), 16384, writable);
    EXPECT_EQ(live(), 2U);
    longer.reset();
    EXPECT_EQ(live(), 1U);
    EXPECT_TRUE(cache.find(at(0), 4096, writable));
}

TEST_F(RegistrationCacheTest, GivesIdleEntriesBackWhenThereIsNoMemoryForMore) {
    RegistrationCache cache = this->cache();
    const Lease used = cache.acquire(at(0), 1024, writable);
    cache.acquire(at(8192), 1024, writable).reset();
    testing::fail_next("ibv_reg_dmabuf_mr", ENOMEM);
    const Lease lease = cache.acquire(at(16384), 1024, writable);
    EXPECT_EQ(live(), 2U);
    EXPECT_EQ(cache.statistics().evictions, 1U);
    EXPECT_TRUE(cache.find(at(0), 1024, writable));
}

// Failing

TEST_F(RegistrationCacheTest, KeepsNothingOfARegistrationThatFailedHalfWay) {
    const std::array pds{basics_.pd, ProtectionDomain(basics_.context)};
    RegistrationCache cache(pds, resolver_);
    const auto descriptors = testing::open_descriptors();
    for (unsigned n = 1; n <= 2; ++n) {
        ASSERT_EQ(softverbs_fail_call("ibv_reg_dmabuf_mr", n, EREMOTEIO), 0);
        EXPECT_THAT(error_of([&] { cache.acquire(at(0), 4096, writable).reset(); }),
                    fails_with("register_memory", EREMOTEIO, "ibv_reg_dmabuf_mr on soft0"));
        EXPECT_EQ(live(), 0U);
        EXPECT_EQ(testing::open_descriptors(), descriptors);
        EXPECT_EQ(cache.statistics().entries, 0U);
        EXPECT_EQ(cache.statistics().bytes, 0U);
    }
    EXPECT_TRUE(cache.acquire(at(0), 4096, writable));
    EXPECT_EQ(cache.statistics().misses, 3U);
}

TEST_F(RegistrationCacheTest, RefusesWhatIsNoRange) {
    RegistrationCache cache = this->cache();
    const auto refusal = [&](std::uintptr_t address, std::size_t length, Access access) {
        return error_of([&] { cache.acquire(address, length, access).reset(); });
    };
    constexpr const char* acquire = "RegistrationCache::acquire";
    EXPECT_THAT(refusal(at(0), 0, writable), fails_with(acquire, EINVAL, "a length of 0"));
    EXPECT_THAT(refusal(~std::uintptr_t{0} - 10, 100, writable),
                fails_with(acquire, EINVAL, "100 bytes at 0xfffffffffffffff5 exceed"));
    EXPECT_THAT(refusal(at(0), 4096, writable | Access::zero_based),
                fails_with(acquire, EINVAL,
                           "zero_based: the same address would refer to a different byte"));
    expect_untouched();
    EXPECT_EQ(cache.statistics().misses, 0U);
}

TEST_F(RegistrationCacheTest, RefusesOptionsThatAreOfOneRegistration) {
    const auto refusal = [&](const RegistrationCacheOptions& options) {
        return error_of([&] { const RegistrationCache made = cache(options); });
    };
    Trail trail;
    EXPECT_THAT(refusal({.registration = {.iova = 4096}}),
                fails_with(function, EINVAL, "an iova applies to one registration"));
    EXPECT_THAT(refusal({.registration = {.trail = &trail}}),
                fails_with(function, EINVAL, "a trail records one registration"));
    const Topology topology = Topology::read();
    EXPECT_THAT(refusal({.registration = {.topology = &topology}}),
                fails_with(function, EINVAL, "set RegistrationCacheOptions::topology"));
    EXPECT_THAT(refusal({.max_entries = 0}),
                fails_with(function, EINVAL, "the limits allow no entry"));
    EXPECT_THAT(refusal({.max_bytes = 0}),
                fails_with(function, EINVAL, "the limits allow no entry"));
    EXPECT_THAT(error_of([&] {
                    const RegistrationCache made(std::span<const ProtectionDomain>(), resolver_);
                }),
                fails_with(function, EINVAL, "no protection domain"));
}

} // namespace
} // namespace rdmabuf
