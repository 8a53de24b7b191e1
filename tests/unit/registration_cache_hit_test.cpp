// SPDX-License-Identifier: BSD-3-Clause
// What a hit does not do: call the kernel, allocate, lock. This program counts allocations and
// locks, and lets the kernel kill a process that calls it. It also has hooks, as programs have that
// invalidate the memory that they unmap.
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <latch>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/registration_cache.hpp>

#include "child_process.hpp"
#include "registration_cache_fixture.hpp"
#include "waiting.hpp"

namespace {

std::atomic<unsigned> allocations{0};
std::atomic<unsigned> locks{0};
/// Called before memory is allocated, freed or unmapped, except by the hook itself.
std::function<void()> hook;
thread_local bool is_in_hook = false;

void call_hook() {
    if (hook && !std::exchange(is_in_hook, true)) {
        hook();
        is_in_hook = false;
    }
}

void* counted(std::size_t size, std::size_t alignment) {
    ++allocations;
    call_hook();
    void* const memory =
        alignment > alignof(std::max_align_t)
            ? std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)
            : std::malloc(size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

} // namespace

void* operator new(std::size_t size) {
    return counted(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
    call_hook();
    std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
    operator delete(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
    operator delete(memory);
}
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
    operator delete(memory);
}

// The linker puts these in the library's way.
extern "C" {
int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
    ++locks;
    return __real_pthread_mutex_lock(mutex);
}
int __real_munmap(void* address, std::size_t length);
int __wrap_munmap(void* address, std::size_t length) {
    call_hook();
    return __real_munmap(address, length);
}
}

namespace rdmabuf {
namespace {

using testing::RegistrationCacheTest;

constexpr Access writable = testing::writable_access;

class RegistrationCacheHit : public RegistrationCacheTest {
  protected:
    RegistrationCacheHit() {
        for (std::size_t i = 0; i < 8; ++i) {
            cache_.acquire(at(8192 * i), 4096, writable).reset();
        }
        hit();
    }

    void hit() {
        for (std::size_t i = 0; i < 8; ++i) {
            const auto lease = cache_.acquire(at(8192 * i + 100), 10, writable);
            all_found_ = all_found_ && lease.lkey() != 0;
        }
    }
    /// How a process ends that does @p action while it may only read, write and exit.
    template <class Action>
    static int status_without_system_calls(const Action& action) {
        const pid_t child = ::fork();
        if (child == 0) {
            ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
            action();
            ::syscall(SYS_exit, 0);
        }
        return status_of_child(child);
    }

    RegistrationCache cache_ = cache();
    bool all_found_ = true;
};

TEST_F(RegistrationCacheHit, AllocatesNothing) {
    const unsigned before = allocations;
    hit();
    EXPECT_EQ(allocations, before);
    EXPECT_TRUE(all_found_);
    cache_.acquire(at(4096), 16, writable).reset();
    EXPECT_GT(allocations, before) << "they are counted";
}

TEST_F(RegistrationCacheHit, LocksNothing) {
    const unsigned before = locks;
    hit();
    EXPECT_EQ(locks, before);
    EXPECT_TRUE(all_found_);
    static_cast<void>(cache_.statistics());
    EXPECT_GT(locks, before) << "they are counted";
}

TEST_F(RegistrationCacheHit, MakesNoSystemCall) {
    EXPECT_EQ(status_without_system_calls([this] { hit(); }), 0);
    const int status = status_without_system_calls([] { ::syscall(SYS_getppid); });
    EXPECT_TRUE(WIFSIGNALED(status)) << "they are noticed";
}

TEST_F(RegistrationCacheHit, HookInAChildDoesNothing) {
    // A thread of the parent that holds the lock does not exist in the child.
    EXPECT_EQ(status_without_system_calls([this] { cache_.invalidate(at(0), 1); }), 0);
    hit();
    EXPECT_TRUE(all_found_);
    EXPECT_EQ(cache_.statistics().invalidations, 0U);
}

// Hooks

TEST_F(RegistrationCacheHit, LeasesCanEndWhileTheCacheItselfAllocatesAndUnmapsMemory) {
    // A lease whose entry the hook invalidates, one whose entry was invalidated before, and one
    // whose entry goes with its last lease.
    RegistrationCache small = cache({.max_entries = 1});
    for (unsigned skipped = 0; skipped < 64; ++skipped) {
        SCOPED_TRACE(skipped);
        cache_.clear();
        small.clear();
        std::array leases{
            cache_.acquire(at(0), 16, writable), cache_.acquire(at(4096), 16, writable),
            small.acquire(at(0), 16, writable), small.acquire(at(4096), 16, writable)};
        cache_.invalidate(at(4096), 16);
        EXPECT_EQ(live(), leases.size());
        unsigned calls = 0;
        hook = [&] {
            if (calls++ == skipped) {
                cache_.invalidate(at(0), 16);
                std::ranges::for_each(leases, &RegistrationCache::Lease::reset);
            }
        };
        for (RegistrationCache* const each : {&cache_, &small}) {
            each->acquire(at(16384), 16, writable).reset();
            each->invalidate(at(16384), 16);
        }
        hook = nullptr;
        EXPECT_GT(calls, skipped);
        EXPECT_EQ(live(), small.statistics().entries);
        EXPECT_EQ(cache_.statistics().entries, 0U);
    }
}

TEST_F(RegistrationCacheHit, CanBeInvalidatedWhileTheCacheIsDestroyed) {
    std::optional<RegistrationCache> ending(cache());
    ending->acquire(at(0), 4096, writable).reset();
    ending->acquire(at(8192), 4096, Access::local_read).reset();
    RegistrationCache* hooked = &*ending;
    unsigned calls = 0;
    hook = [&] {
        if (hooked != nullptr) {
            ++calls;
            hooked->invalidate(at(0), 16384);
        }
    };
    ending.reset();
    hooked = nullptr;
    hook = nullptr;
    EXPECT_GT(calls, 0U);
    EXPECT_EQ(live(), 8U) << "those of the other cache";
}

TEST_F(RegistrationCacheHit, NobodyWaitsForEntriesOfAThreadThatWaitsForARegistration) {
    const auto waiting_id = std::this_thread::get_id();
    const pid_t waiting = ::gettid();
    std::latch registers(1);
    exporter_->on_export = [&] {
        registers.count_down();
        EXPECT_TRUE(testing::eventually([&] { return testing::is_asleep(waiting); }));
        cache_.invalidate(at(0), 1);
    };
    std::jthread registering([&] { cache_.acquire(at(20480), 16, writable).reset(); });
    registers.wait();
    bool later = false; // The hook ran while this thread held the lock of the cache.
    hook = [&] {
        if (!later && std::this_thread::get_id() == waiting_id) {
            const std::size_t before = live();
            cache_.invalidate(at(0), 1);
            later = live() == before;
        }
    };
    cache_.acquire(at(20480), 16, writable).reset();
    registering.join();
    hook = nullptr;
    EXPECT_TRUE(later);
    EXPECT_FALSE(cache_.find(at(0), 1, writable));
}

TEST_F(RegistrationCacheHit, CanBeInvalidatedWhileTheCacheItselfAllocatesAndUnmapsMemory) {
    RegistrationCache small = cache({.max_entries = 4});
    const std::array caches{&cache_, &small};
    std::size_t half = 0; // the half of the memory that is invalidated
    unsigned calls = 0;
    unsigned later = 0; // the entries that were not deregistered at once
    bool stop = false;
    bool found_again = false;
    hook = [&] {
        const std::uintptr_t gone = at(half + std::size_t{4096} * (++calls % 8));
        for (RegistrationCache* const each : caches) {
            if (!stop && each->find(gone, 1, writable)) {
                const std::size_t before = live();
                each->invalidate(gone, 1);
                found_again = found_again || each->find(gone, 1, writable);
                stop = live() == before;
                later += stop ? 1 : 0;
            }
        }
    };
    for (std::size_t round = 0; round < 64; ++round) {
        half = round % 16 < 8 ? 32768 : 0;
        for (RegistrationCache* const each : caches) {
            stop = false;
            each->acquire(at(4096 * (round % 16)), 4096, writable).reset();
            stop = true;
        }
        std::set<std::uint32_t> keys;
        for (std::size_t i = 0; i < 32; ++i) {
            if (const auto lease = caches[i % 2]->find(at(4096 * (i / 2)), 1, writable)) {
                keys.insert(lease.lkey());
            }
        }
        EXPECT_EQ(keys.size(), live()) << "what was invalidated was deregistered";
    }
    hook = nullptr;
    EXPECT_GT(calls, 1000U);
    EXPECT_GT(later, 0U);
    EXPECT_FALSE(found_again);
    cache_.clear();
    small.clear();
    EXPECT_EQ(live(), 0U);
    EXPECT_EQ(cache_.statistics().bytes + small.statistics().bytes, 0U);
    hit();
    EXPECT_TRUE(all_found_);
}

} // namespace
} // namespace rdmabuf
