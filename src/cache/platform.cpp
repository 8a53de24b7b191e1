// SPDX-License-Identifier: BSD-3-Clause
#include "cache/platform.hpp"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <exception>

namespace rdmabuf::detail {
namespace {

long membarrier(int command) noexcept {
    return ::syscall(SYS_membarrier, command, 0, 0);
}

std::array<std::atomic<bool>, Platform::thread_slots / Platform::thread_slot_step> taken{};

/// True after this thread has freed its slot, because the thread is ending.
constinit thread_local bool slot_was_freed = false;

/// Arranges that a function is called when a thread ends. Uses pthread_key_create(3) instead of a
/// thread_local object with a destructor: if there is no memory to register such a destructor,
/// glibc ends the process. With glibc, such an object would also keep a library that contains this
/// code loaded until the thread ends.
class ThreadEnd {
  public:
    explicit ThreadEnd(void (*function)(void*)) noexcept
        : created_(::pthread_key_create(&key_, function) == 0) {}
    ~ThreadEnd() {
        if (created_) {
            ::pthread_key_delete(key_);
        }
        created_ = false;
    }
    ThreadEnd(const ThreadEnd&) = delete;
    ThreadEnd& operator=(const ThreadEnd&) = delete;

    /// Arranges that the function is called with @p argument, which must not be null, when the
    /// calling thread ends.
    /// @return false if the C library has no memory
    bool call_with(void* argument) const noexcept {
        return created_ && ::pthread_setspecific(key_, argument) == 0;
    }

  private:
    pthread_key_t key_{};
    bool created_;
};

} // namespace

std::atomic<bool> Platform::membarrier_{false};
std::atomic<std::size_t> Platform::thread_slots_in_use_{Platform::shared_thread_slot +
                                                        Platform::thread_slot_step};
constinit thread_local std::size_t Platform::thread_slot_ = Platform::shared_thread_slot;
constinit thread_local std::size_t Platform::fast_thread_slot_ = Platform::shared_thread_slot;
constinit ReadSideSections<Platform> read_side_sections;

void Platform::prepare() noexcept {
    if (!membarrier_.load(std::memory_order_relaxed) &&
        membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0) {
        membarrier_.store(true, std::memory_order_relaxed);
    }
}

void Platform::barrier() noexcept {
    // If membarrier(2) fails, this process may be a child process after fork(2). Such a process
    // must register for membarrier(2) again.
    if (barrier_is_enough() && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
        (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0 ||
         membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)) {
        std::terminate(); // Without the barrier, memory in use could be deregistered.
    }
}

void Platform::pause() noexcept {
    ::sched_yield();
}

void Platform::free_thread_slot(void* /*argument*/) noexcept {
    // The lease counts are not reset, because the cache uses only the sums over all slots.
    taken[thread_slot_ / thread_slot_step].store(false, std::memory_order_release);
    thread_slot_ = shared_thread_slot;
    fast_thread_slot_ = shared_thread_slot;
    slot_was_freed = true;
}

std::size_t Platform::claim_thread_slot() noexcept {
    static const ThreadEnd thread_end(&Platform::free_thread_slot);
    if (slot_was_freed) {
        return shared_thread_slot;
    }
    std::size_t slot = shared_thread_slot + thread_slot_step;
    while (slot < thread_slots &&
           taken[slot / thread_slot_step].exchange(true, std::memory_order_acq_rel)) {
        slot += thread_slot_step;
    }
    if (slot == thread_slots) {
        return shared_thread_slot;
    }
    if (!thread_end.call_with(&taken)) {
        taken[slot / thread_slot_step].store(false, std::memory_order_release);
        return shared_thread_slot;
    }
    std::size_t known = thread_slots_in_use_.load(std::memory_order_seq_cst);
    while (known <= slot &&
           !thread_slots_in_use_.compare_exchange_weak(known, slot + thread_slot_step)) {
    }
    thread_slot_ = slot;
    fast_thread_slot_ = barrier_is_enough() ? slot : shared_thread_slot;
    return slot;
}

} // namespace rdmabuf::detail
