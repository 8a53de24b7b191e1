// SPDX-License-Identifier: BSD-3-Clause
// What a hit does not do: call the kernel, allocate, lock. This program counts allocations and
// locks, and lets the kernel kill a process that calls it.
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include <rdmabuf/rdmabuf.hpp>

#include "registration_cache_fixture.hpp"

namespace {

std::atomic<unsigned> allocations{0};
std::atomic<unsigned> locks{0};

void* counted(std::size_t size, std::size_t alignment) {
    ++allocations;
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
    std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
    std::free(memory);
}

// The linker puts these in the library's way.
extern "C" {
int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
    ++locks;
    return __real_pthread_mutex_lock(mutex);
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
        int status = 0;
        EXPECT_EQ(::waitpid(child, &status, 0), child);
        return status;
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
    const int status = status_without_system_calls([this] { cache_.invalidate(at(0), 1); });
    EXPECT_TRUE(WIFSIGNALED(status)) << "they are noticed";
}

} // namespace
} // namespace rdmabuf
