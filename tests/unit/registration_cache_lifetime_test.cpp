// SPDX-License-Identifier: BSD-3-Clause
// When entries of a RegistrationCache end: invalidation, both policies, and the cache's own end.
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/registration_cache.hpp>

#include "registration_cache_fixture.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using testing::error_of;
using testing::eventually;
using testing::fails_with;
using testing::is_asleep;
using testing::RegistrationCacheTest;
using Lease = RegistrationCache::Lease;

constexpr Access writable = testing::writable_access;

/// Passes everything on, and calls the test before it exports: in the middle of a registration.
class PausingExporter final : public Exporter {
  public:
    explicit PausingExporter(std::shared_ptr<Exporter> exporter) : exporter_(std::move(exporter)) {}

    [[nodiscard]] std::string_view name() const noexcept override { return exporter_->name(); }
    [[nodiscard]] Availability availability() const override { return Availability::yes(); }
    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const override {
        const std::scoped_lock lock(mutex_);
        return exporter_->find(address);
    }
    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping) const override {
        exporting(address);
        const std::scoped_lock lock(mutex_);
        return exporter_->export_range(address, length, mapping);
    }

    std::function<void(std::uintptr_t)> exporting = [](std::uintptr_t) {};

  private:
    std::shared_ptr<Exporter> exporter_;
    mutable std::mutex mutex_;
};

class RegistrationCacheLifetime : public RegistrationCacheTest {
  protected:
    std::shared_ptr<PausingExporter> pausing_ = std::make_shared<PausingExporter>(exporter_);

    [[nodiscard]] RegistrationCache pausing_cache() const {
        return {basics_.pd, Resolver({pausing_})};
    }
};

// Invalidation

TEST_F(RegistrationCacheLifetime, DeregistersIdleEntriesWhenTheyAreInvalidated) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(0), 4096, writable).reset();
    cache.acquire(at(8192), 4096, Access::local_write).reset();
    cache.acquire(at(16384), 4096, writable).reset();
    cache.invalidate(at(4096), 4096); // touches two, and overlaps none
    EXPECT_EQ(live(), 3U);
    cache.invalidate(at(4095), 4098);
    EXPECT_EQ(live(), 1U);
    EXPECT_FALSE(cache.find(at(0), 1, writable));
    EXPECT_FALSE(cache.find(at(8192), 1, Access::local_write));
    EXPECT_TRUE(cache.find(at(16384), 1, writable));
    EXPECT_EQ(cache.statistics().invalidations, 2U);
    EXPECT_EQ(cache.statistics().entries, 1U);
    cache.invalidate(at(0), ~std::size_t{0});
    EXPECT_EQ(live(), 0U);
}

TEST_F(RegistrationCacheLifetime, LetsLeasesFinishOnWhatWasInvalidated) {
    RegistrationCache cache = this->cache();
    Lease first = cache.acquire(at(0), 4096, writable);
    Lease second = cache.find(at(0), 4096, writable);
    const std::uint32_t before = first.lkey();
    cache.invalidate(at(100), 1);
    EXPECT_FALSE(cache.find(at(0), 4096, writable));
    EXPECT_EQ(live(), 1U);
    EXPECT_EQ(first.registration().state(), RegistrationState::registered);
    const Lease anew = cache.acquire(at(0), 4096, writable);
    EXPECT_NE(anew.lkey(), before);
    EXPECT_EQ(live(), 2U);
    first.reset();
    EXPECT_EQ(live(), 2U);
    second.reset();
    EXPECT_EQ(live(), 1U);
    EXPECT_EQ(cache.statistics().bytes, 4096U);
}

TEST_F(RegistrationCacheLifetime, RegistersAgainWhatWasInvalidatedMeanwhile) {
    RegistrationCache cache = pausing_cache();
    unsigned exports = 0;
    pausing_->exporting = [&](std::uintptr_t) {
        if (++exports == 1) {
            cache.invalidate(at(4095), 1);
        }
    };
    const Lease lease = cache.acquire(at(0), 4096, writable);
    EXPECT_EQ(exports, 2U);
    EXPECT_EQ(registrations().size(), 2U);
    EXPECT_EQ(live(), 1U);
    EXPECT_TRUE(cache.find(at(0), 4096, writable));
    EXPECT_EQ(cache.statistics().entries, 1U);
}

TEST_F(RegistrationCacheLifetime, FailsWithEagainIfEachRegistrationIsInvalidated) {
    RegistrationCache cache = pausing_cache();
    unsigned exports = 0;
    pausing_->exporting = [&](std::uintptr_t) {
        ++exports;
        ASSERT_LT(exports, 1000U) << "acquire() does not end";
        cache.clear();
    };
    EXPECT_THAT(
        error_of([&] { cache.acquire(at(0), 4096, writable).reset(); }),
        fails_with("RegistrationCache::acquire", EAGAIN, "during each of 16 registrations"));
    EXPECT_EQ(exports, 16U);
    EXPECT_EQ(live(), 0U);
    EXPECT_EQ(cache.statistics().entries, 0U);
    EXPECT_EQ(cache.statistics().bytes, 0U);
    pausing_->exporting = [](std::uintptr_t) {};
    EXPECT_TRUE(cache.acquire(at(0), 4096, writable));
}

TEST_F(RegistrationCacheLifetime, RefusesAnExporterThatAcquiresTheMemoryThatItExports) {
    RegistrationCache cache = pausing_cache();
    std::optional<Error> error;
    pausing_->exporting = [&](std::uintptr_t address) {
        error = error_of([&] { cache.acquire(address, 4096, writable).reset(); });
    };
    EXPECT_TRUE(cache.acquire(at(0), 8192, writable));
    EXPECT_THAT(error, fails_with("RegistrationCache::acquire", EDEADLK,
                                  "do not call acquire() for the exported memory in an exporter"));
}

TEST_F(RegistrationCacheLifetime, AllowsAnExporterThatAcquiresOtherMemory) {
    RegistrationCache cache = pausing_cache();
    pausing_->exporting = [&](std::uintptr_t address) {
        if (address == at(0)) {
            EXPECT_TRUE(cache.acquire(at(8192), 4096, writable));
        }
    };
    EXPECT_TRUE(cache.acquire(at(0), 4096, writable));
}

TEST_F(RegistrationCacheLifetime, RefusesExportersOfTwoThreadsThatWaitForEachOther) {
    RegistrationCache cache = pausing_cache();
    std::latch both(2);
    std::array<std::optional<Error>, 2> errors;
    pausing_->exporting = [&](std::uintptr_t address) {
        const std::size_t own = address == at(0) ? 0 : 1;
        both.arrive_and_wait();
        errors.at(own) =
            error_of([&] { cache.acquire(own == 0 ? at(32768) : at(0), 4096, writable).reset(); });
    };
    {
        const std::jthread first([&] { cache.acquire(at(0), 4096, writable).reset(); });
        const std::jthread second([&] { cache.acquire(at(32768), 4096, writable).reset(); });
    }
    EXPECT_NE(errors[0].has_value(), errors[1].has_value()) << "one of them must go on";
    EXPECT_THAT(errors[0] ? errors[0] : errors[1],
                fails_with("RegistrationCache::acquire", EDEADLK, "waits for this one"));
}

TEST_F(RegistrationCacheLifetime, LeavesOutOfAMergerWhatWasInvalidatedMeanwhile) {
    RegistrationCache cache = pausing_cache();
    cache.acquire(at(0), 4096, writable).reset();
    unsigned exports = 0;
    pausing_->exporting = [&](std::uintptr_t address) {
        if (++exports == 1) {
            EXPECT_EQ(address, at(0)) << "it is to be merged";
            cache.invalidate(at(0), 4096);
        }
    };
    const Lease lease = cache.acquire(at(4096), 4096, writable);
    EXPECT_EQ(lease.address(), at(4096));
    EXPECT_EQ(live(), 1U);
}

TEST_F(RegistrationCacheLifetime, InvalidationWaitsForTheDeregistrationByAnotherThread) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(0), 4096, writable).reset();
    std::latch begun(1);
    std::latch goes_on(1);
    testing::before_each_deregistration([&] {
        testing::before_each_deregistration(nullptr);
        begun.count_down();
        goes_on.wait();
    });
    const std::jthread clearing([&] { cache.clear(); });
    begun.wait();
    std::atomic<pid_t> id = 0;
    std::atomic<std::size_t> left = 1;
    std::atomic<bool> returned = false;
    const std::jthread invalidating([&] {
        id = ::gettid();
        cache.invalidate(at(0), 4096);
        left = live();
        returned = true;
    });
    EXPECT_TRUE(eventually([&] { return returned || (id != 0 && is_asleep(id)); }));
    goes_on.count_down();
    EXPECT_TRUE(eventually([&] { return returned.load(); }));
    EXPECT_EQ(left, 0U);
}

TEST_F(RegistrationCacheLifetime, ClearingDoesNotWaitForDeregistrationsThatBeginLater) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(0), 4096, writable).reset();
    std::array<std::latch, 2> begun{std::latch(1), std::latch(1)};
    std::array<std::latch, 2> goes_on{std::latch(1), std::latch(1)};
    std::atomic<std::size_t> deregistrations = 0;
    testing::before_each_deregistration([&] {
        const std::size_t i = deregistrations++;
        begun.at(i).count_down();
        goes_on.at(i).wait();
    });
    const std::jthread first([&] { cache.invalidate(at(0), 1); });
    begun[0].wait();
    std::atomic<pid_t> id = 0;
    std::atomic<bool> returned = false;
    const std::jthread clearing([&] {
        id = ::gettid();
        cache.clear();
        returned = true;
    });
    EXPECT_TRUE(eventually([&] { return id != 0 && is_asleep(id); }));
    cache.acquire(at(8192), 4096, writable).reset();
    const std::jthread later([&] { cache.invalidate(at(8192), 1); });
    begun[1].wait();
    goes_on[0].count_down();
    EXPECT_TRUE(eventually([&] { return returned.load(); }));
    EXPECT_EQ(live(), 1U) << "the later one has not ended";
    goes_on[1].count_down();
}

TEST_F(RegistrationCacheLifetime, UsesTheSlotsOfEntriesThatEndedAgain) {
    RegistrationCache cache = this->cache();
    for (int i = 0; i < 5000; ++i) {
        Lease lease = cache.acquire(at(4096), 4096 + static_cast<std::size_t>(i % 7), writable);
        const Lease other = cache.find(at(4096), 1, writable);
        ASSERT_EQ(lease.lkey(), other.lkey());
        cache.invalidate(at(4096), 1);
    }
    EXPECT_EQ(live(), 0U);
    EXPECT_EQ(cache.statistics().hits, 5000U);
}

// The cache's end

TEST_F(RegistrationCacheLifetime, LeasesSurviveTheCache) {
    std::optional<RegistrationCache> cache(this->cache());
    Lease first = cache->acquire(at(0), 4096, writable);
    Lease second = cache->acquire(at(8192), 4096, writable);
    cache->acquire(at(16384), 4096, writable).reset();
    const std::uintptr_t address = at(8192);
    const std::weak_ptr<Exporter> exporter = exporter_;
    resolver_ = Resolver();
    pausing_.reset();
    exporter_.reset();
    EXPECT_FALSE(exporter.expired());
    cache.reset();
    EXPECT_TRUE(exporter.expired()) << "the last lease may end where no driver may be called";
    EXPECT_EQ(live(), 2U);
    EXPECT_EQ(first.registration().lkey(), first.lkey());
    first.reset();
    EXPECT_EQ(live(), 1U);
    EXPECT_EQ(second.address(), address);
    std::jthread([&] { second.reset(); }).join();
    EXPECT_EQ(live(), 0U);
}

TEST_F(RegistrationCacheLifetime, LeavesNothingWhenItIsMovedOver) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(0), 4096, writable).reset();
    RegistrationCache other = this->cache();
    other.acquire(at(8192), 4096, writable).reset();
    cache = std::move(other);
    EXPECT_EQ(live(), 1U);
    EXPECT_TRUE(cache.find(at(8192), 4096, writable));
}

// Several threads

TEST_F(RegistrationCacheLifetime, RegistersOnceForAllWhoWaitForIt) {
    RegistrationCache cache = pausing_cache();
    std::latch begun(1);
    std::latch waiting(1);
    pausing_->exporting = [&](std::uintptr_t) {
        begun.count_down();
        waiting.wait();
    };
    constexpr unsigned others = 4;
    std::vector<std::uint32_t> keys(others + 1);
    {
        std::vector<std::jthread> threads;
        threads.emplace_back([&] { keys[others] = cache.acquire(at(0), 4096, writable).lkey(); });
        begun.wait();
        for (unsigned i = 0; i < others; ++i) {
            threads.emplace_back(
                [&, i] { keys[i] = cache.acquire(at(i), 4000, Access::local_write).lkey(); });
        }
        // Once they are counted they wait for the first, or find what it has made.
        EXPECT_TRUE(eventually([&] { return cache.statistics().misses == others + 1; }));
        waiting.count_down();
    }
    EXPECT_EQ(registrations().size(), 1U);
    EXPECT_EQ(keys, std::vector<std::uint32_t>(others + 1, keys[0]));
}

TEST_F(RegistrationCacheLifetime, TellsAllWhoWaitWhyItFailed) {
    RegistrationCache cache = pausing_cache();
    std::latch begun(1);
    std::latch waiting(1);
    unsigned exports = 0;
    pausing_->exporting = [&](std::uintptr_t) {
        ++exports;
        begun.count_down();
        waiting.wait();
    };
    testing::fail_next("ibv_reg_dmabuf_mr", EREMOTEIO);
    std::array<std::optional<Error>, 2> errors;
    std::atomic<pid_t> second_id = 0;
    {
        const auto acquire = [&](std::size_t i) {
            errors.at(i) = error_of([&] { cache.acquire(at(0), 4096, writable).reset(); });
        };
        const std::jthread first(acquire, 0);
        begun.wait();
        const std::jthread second([&] {
            second_id = gettid();
            acquire(1);
        });
        EXPECT_TRUE(
            eventually([&] { return cache.statistics().misses == 2 && is_asleep(second_id); }));
        waiting.count_down();
    }
    EXPECT_EQ(exports, 1U);
    for (const std::optional<Error>& error : errors) {
        EXPECT_THAT(error, fails_with("register_memory", EREMOTEIO, "ibv_reg_dmabuf_mr on soft0"));
    }
}

TEST_F(RegistrationCacheLifetime, ForgetsAThreadThatIsCancelledWhileItWaits) {
    RegistrationCache cache = pausing_cache();
    std::atomic<bool> begun = false;
    std::atomic<bool> may_end = false;
    pausing_->exporting = [&](std::uintptr_t) {
        begun = true;
        while (!may_end) {
            std::this_thread::yield();
        }
    };
    // The next thread gets the id of the last one that was joined: the cancelled one. It must not
    // be taken for a waiter.
    for (const bool cancelled : {true, false}) {
        begun = may_end = false;
        cache.clear();
        std::thread first([&] { cache.acquire(at(0), 4096, writable).reset(); });
        EXPECT_TRUE(testing::eventually([&] { return begun.load(); }));
        std::atomic<pid_t> id = 0;
        std::thread second([&] {
            id = ::gettid();
            cache.acquire(at(0), 4096, writable).reset();
        });
        EXPECT_TRUE(testing::eventually([&] { return id != 0 && testing::is_asleep(id); }));
        if (cancelled) {
            EXPECT_EQ(::pthread_cancel(second.native_handle()), 0);
        }
        may_end = true;
        first.join();
        second.join();
    }
}

TEST_F(RegistrationCacheLifetime, HitsGoOnWhileAnotherThreadRegisters) {
    RegistrationCache cache = pausing_cache();
    cache.acquire(at(0), 4096, writable).reset();
    std::latch begun(1);
    std::latch done(1);
    pausing_->exporting = [&](std::uintptr_t) {
        begun.count_down();
        done.wait();
    };
    const std::jthread other([&] { cache.acquire(at(8192), 4096, writable).reset(); });
    begun.wait();
    for (int i = 0; i < 1000; ++i) {
        ASSERT_TRUE(cache.find(at(0), 4096, writable));
    }
    cache.invalidate(at(0), 4096); // nor does anything else wait for it
    EXPECT_FALSE(cache.find(at(0), 4096, writable));
    done.count_down();
}

TEST_F(RegistrationCacheLifetime, MoreThreadsThanThereAreRowsFor) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(0), 4096, writable).reset();
    constexpr unsigned threads = 150;
    std::latch all(threads);
    std::vector<Lease> leases(threads);
    {
        std::vector<std::jthread> running;
        for (unsigned i = 0; i < threads; ++i) {
            running.emplace_back([&, i] {
                Lease lease = cache.find(at(0), 4096, writable);
                all.arrive_and_wait(); // each has a row, or none
                lease = cache.find(at(0), 4096, writable);
                leases[i] = std::move(lease);
            });
        }
    }
    EXPECT_EQ(cache.statistics().hits, 2U * threads);
    cache.invalidate(at(0), 1);
    EXPECT_EQ(live(), 1U);
    const Lease last = std::move(leases.back());
    leases.clear();
    EXPECT_EQ(live(), 1U);
}

#ifndef RDMABUF_SANITIZED // sanitizers need address space of their own
/// Takes all memory that malloc(3) can give to the calling thread, while the object exists.
class AllMemory {
  public:
    AllMemory() {
        EXPECT_EQ(::getrlimit(RLIMIT_AS, &limit_), 0);
        const rlimit none{.rlim_cur = 1, .rlim_max = limit_.rlim_max};
        EXPECT_EQ(::setrlimit(RLIMIT_AS, &none), 0);
        for (std::size_t size = std::size_t{1} << 24U; size >= sizeof(void*); size /= 2) {
            while (void* const block = std::malloc(size)) {
                *static_cast<void**>(block) = blocks_;
                blocks_ = block;
            }
        }
    }
    ~AllMemory() {
        while (blocks_ != nullptr) {
            std::free(std::exchange(blocks_, *static_cast<void**>(blocks_)));
        }
        ::setrlimit(RLIMIT_AS, &limit_);
    }
    AllMemory(const AllMemory&) = delete;
    AllMemory& operator=(const AllMemory&) = delete;

  private:
    rlimit limit_{};
    void* blocks_ = nullptr;
};

TEST_F(RegistrationCacheLifetime, FirstUseInAThreadNeedsNoMemory) {
    RegistrationCache cache = this->cache();
    cache.acquire(at(0), 4096, writable).reset();
    bool hit = false;
    std::thread([&] {
        const AllMemory all;
        hit = static_cast<bool>(cache.find(at(0), 4096, writable));
    }).join();
    EXPECT_TRUE(hit);
}
#endif

// The policy `checked`

TEST_F(RegistrationCacheLifetime, ComparesTheGenerationOnEachHit) {
    RegistrationCache cache = this->cache({.policy = CachePolicy::checked});
    Lease old = cache.acquire(at(4096), 4096, writable);
    const unsigned finds = exporter_->finds;
    EXPECT_TRUE(cache.find(at(5000), 10, writable));
    EXPECT_TRUE(cache.find(at(5000), 10, writable));
    EXPECT_EQ(exporter_->finds, finds + 2);

    exporter_->allocation.generation = 2;
    EXPECT_FALSE(cache.find(at(5000), 10, writable));
    EXPECT_EQ(cache.statistics().stale, 1U);
    EXPECT_EQ(live(), 1U) << "it has a lease";
    const Lease anew = cache.acquire(at(4096), 4096, writable);
    EXPECT_NE(anew.lkey(), old.lkey());
    EXPECT_EQ(anew.registration().allocation()->generation, 2U);
    old.reset();
    EXPECT_EQ(live(), 1U);
    EXPECT_TRUE(cache.find(at(4096), 10, writable));
}

TEST_F(RegistrationCacheLifetime, DoesNotReturnWhatIsInvalidatedWhileItIsChecked) {
    RegistrationCache cache = this->cache({.policy = CachePolicy::checked});
    const std::uint32_t before = cache.acquire(at(0), 4096, writable).lkey();
    bool invalidated = false;
    exporter_->on_find = [&] {
        if (!std::exchange(invalidated, true)) {
            cache.invalidate(at(0), 1);
        }
    };
    EXPECT_FALSE(cache.find(at(0), 4096, writable));
    EXPECT_EQ(live(), 0U);
    EXPECT_EQ(cache.statistics().stale, 0U);
    EXPECT_NE(cache.acquire(at(0), 4096, writable).lkey(), before);
}

TEST_F(RegistrationCacheLifetime, HitsInAThreadThatIsBeingCancelled) {
    RegistrationCache cache = this->cache({.policy = CachePolicy::checked});
    cache.acquire(at(0), 4096, writable).reset();
    exporter_->on_find = [] { ::pthread_testcancel(); };
    std::jthread([&] {
        ::pthread_cancel(::pthread_self());
        EXPECT_TRUE(cache.find(at(0), 4096, writable));
        ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    }).join();
    EXPECT_EQ(cache.statistics().hits, 1U);
}

TEST_F(RegistrationCacheLifetime, ChecksWithTheExporterOfTheMemoryAmongThoseOfOneName) {
    const auto second =
        std::make_shared<testing::FakeExporter>(testing::registered_size, at(0) << 1U);
    RegistrationCache cache(basics_.pd, Resolver({exporter_, second}),
                            {.policy = CachePolicy::checked});
    cache.acquire(second->allocation.base, 4096, writable).reset();
    EXPECT_TRUE(cache.find(second->allocation.base, 4096, writable));
    second->freed = true;
    EXPECT_FALSE(cache.find(second->allocation.base, 4096, writable));
}

TEST_F(RegistrationCacheLifetime, NeverHitsWhatItCannotCheck) {
    RegistrationCache cache = this->cache({.policy = CachePolicy::checked});
    cache.acquire(at(0), 4096, writable).reset();
    exporter_->find_error = EIO;
    EXPECT_FALSE(cache.find(at(0), 4096, writable));
    EXPECT_EQ(live(), 0U);
    EXPECT_THAT(error_of([&] { cache.acquire(at(0), 4096, writable).reset(); }),
                fails_with("register_memory", EIO, "fakePointerGetAttribute"));
}

TEST_F(RegistrationCacheLifetime, DoesNotHitOnAnAllocationWithoutTheAddress) {
    RegistrationCache cache = this->cache({.policy = CachePolicy::checked});
    const std::uintptr_t address = at(0);
    cache.acquire(address, 4096, writable).reset();
    exporter_->allocation.base += testing::registered_size;
    exporter_->find_anywhere = true;
    EXPECT_FALSE(cache.find(address, 4096, writable));
    EXPECT_EQ(cache.statistics().stale, 1U);
    EXPECT_THAT(error_of([&] { cache.acquire(address, 4096, writable).reset(); }),
                fails_with("register_memory", EIO, "the exporter 'fake'"));
}

TEST_F(RegistrationCacheLifetime, NoticesThatCheckedMemoryWasFreed) {
    RegistrationCache cache =
        this->cache({.policy = CachePolicy::checked, .registration = {.device_memory = true}});
    cache.acquire(at(0), 4096, writable).reset();
    exporter_->freed = true;
    EXPECT_THAT(error_of([&] { cache.acquire(at(0), 4096, writable).reset(); }),
                fails_with("register_memory", EFAULT, "of these exporters: fake"));
    EXPECT_EQ(live(), 0U);
    EXPECT_EQ(cache.statistics().stale, 1U);
}

TEST_F(RegistrationCacheLifetime, KeepsNoHostMemoryThatNobodyCanCheck) {
    RegistrationCache cache = this->cache({.policy = CachePolicy::checked});
    Lease all = cache.acquire(host(), 8192, Access::local_write);
    // This lease does not keep the program from freeing the rest of the memory.
    Lease part = cache.acquire(host(), 4096, Access::local_write);
    EXPECT_NE(all.lkey(), part.lkey());
    EXPECT_EQ(live(), 2U);
    all.reset();
    EXPECT_EQ(live(), 1U);
    EXPECT_FALSE(cache.find(host(), 8192, Access::local_write));
    Lease again = cache.acquire(host(), 8192, Access::local_write);
    EXPECT_EQ(cache.statistics().hits, 0U);
    EXPECT_EQ(cache.statistics().entries, 2U);
    cache.invalidate(host(), 8192);
    again.reset();
    part.reset();
    EXPECT_EQ(live(), 0U);
    EXPECT_EQ(cache.statistics().entries, 0U);
    EXPECT_FALSE(cache.find(host(), 4096, Access::local_write));
}

TEST_F(RegistrationCacheLifetime, KeepsNoMemoryOfWhichOnlyAPartCanBeChecked) {
    exporter_->allocation = {
        .base = host(), .length = 4096, .generation = 1, .kind = MemoryKind::pinned_host};
    exporter_->standard_error = ENOTSUP;
    RegistrationCache cache = this->cache({.policy = CachePolicy::checked});
    cache.acquire(host(), 8192, Access::local_write).reset();
    EXPECT_EQ(live(), 0U);
    cache.acquire(host(), 4096, Access::local_write).reset();
    EXPECT_EQ(live(), 1U);
}

} // namespace
} // namespace rdmabuf
