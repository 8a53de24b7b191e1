// SPDX-License-Identifier: BSD-3-Clause
// Creates the only Manager of this process, and handles fork(2) and the exit of the process.
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <new>
#include <system_error>

#include "cm/manager.hpp"
#include "objects/exit_handler.hpp"

namespace softverbs::cm {

namespace {

std::atomic<Manager*> the_manager{nullptr};
std::mutex making;

void before_fork() {
    making.lock();
    if (Manager* const there = the_manager.load(); there != nullptr) {
        there->lock.lock();
    }
}
void after_fork_in_parent() {
    if (Manager* const there = the_manager.load(); there != nullptr) {
        there->lock.unlock();
    }
    making.unlock();
}
void after_fork_in_child() {
    // The child process creates its own manager when it needs one. It does not destroy the manager
    // of the parent, but only closes the file descriptors that it has inherited from it.
    if (Manager* const parents = the_manager.exchange(nullptr); parents != nullptr) {
        parents->abandon();
        parents->lock.unlock();
    }
    making.unlock();
}
void at_process_exit() {
    if (Manager* const there = the_manager.load(); there != nullptr) {
        there->at_exit();
    }
}

} // namespace

Manager* existing_manager() noexcept {
    return the_manager.load(std::memory_order_acquire);
}

Manager* manager() {
    const std::scoped_lock guard(making);
    if (Manager* const there = the_manager.load(); there != nullptr) {
        return there;
    }
    // Another process that ends may remove the rendezvous directory (which all processes of the
    // user share) while this process opens files in it. If so, try again.
    for (int attempt = 0;; ++attempt) {
        try {
            auto* const made = new Manager;
            the_manager.store(made);
            static bool registered = false;
            if (!registered) {
                registered = true;
                ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
                register_exit_handler<at_process_exit>();
            }
            return made;
        } catch (const std::system_error& error) {
            constexpr int attempts = 8;
            if (error.code().value() == ENOENT && attempt < attempts) {
                continue;
            }
            std::fprintf(stderr, "softverbs: rdma_cm is not available: %s\n", error.what());
            errno = error.code().value();
        } catch (const std::bad_alloc&) {
            errno = ENOMEM;
        }
        return nullptr;
    }
}

} // namespace softverbs::cm
