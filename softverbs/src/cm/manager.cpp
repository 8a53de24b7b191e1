// SPDX-License-Identifier: BSD-3-Clause
#include "cm/manager.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <new>
#include <span>
#include <system_error>

#include "cm/descriptors.hpp"
#include "control/settings.hpp"
#include "control/text.hpp"
#include "fabric/background_thread.hpp"
#include "fabric/clock.hpp"
#include "fabric/environment.hpp"
#include "fabric/system_error.hpp"
#include "fabric/uncancellable.hpp"
#include "objects/exit_handler.hpp"
#include "objects/process.hpp"

namespace softverbs::cm {

namespace {

/// Default timeout exponent for the reply of a peer, as in the kernel: 4.096 µs * 2^20, about 4
/// seconds. The kernel sends a message up to 16 times, so softverbs waits 16 times as long.
constexpr unsigned default_response_timeout = 20;
constexpr unsigned max_response_timeout = 31;

constexpr std::uint64_t exchange_ready = 1;
constexpr std::uint64_t woken = 2; // larger values: a ChannelFile's address

unsigned response_timeout_from_environment() {
    const auto text = fabric::environment_variable("SOFTVERBS_CM_TIMEOUT");
    const auto value = text.empty() ? std::optional(default_response_timeout) : parse_number(text);
    if (!value || *value > max_response_timeout) {
        refuse_setting("SOFTVERBS_CM_TIMEOUT", text, "a number from 0 to 31");
    }
    return *value;
}

} // namespace

Manager::Manager()
    : exchange_(process().network, *this),
      registry_(exchange_),
      epoll_(fabric::checked(::epoll_create1(EPOLL_CLOEXEC), "an epoll")),
      wake_(fabric::checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "an eventfd")),
      response_timeout_(response_timeout_from_environment()) {
    const auto watch = [this](int fd, std::uint64_t what) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = what;
        if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
            fabric::throw_error(errno, "cannot watch a descriptor with epoll");
        }
    };
    watch(exchange_.node().descriptor(), exchange_ready);
    watch(wake_.get(), woken);
    thread_ = fabric::start_background_thread("softverbs-cm", [this] { run(); });
}

void Manager::at_exit() noexcept {
    // Wait for the lock for at most 0.1 s. If the lock's owner was interrupted by a signal handler
    // that called exit(3), the lock is never released.
    const bool locked = fabric::retry_every_ms(100, [this] { return lock.try_lock(); });
    registry_.release_all();
    exchange_.node().remove_files();
    registry_.remove_unused();
    if (locked) {
        lock.unlock();
    }
}

void Manager::abandon() noexcept {
    exchange_.node().abandon();
    registry_.abandon();
    epoll_.reset();
    wake_.reset();
    for (const auto& file : files_) {
        orphan(*file);
        file->signal_end.reset();
    }
    new (&thread_) std::thread; // The child has no such thread: it cannot join or detach it.
}

// Functions of the Manager's background thread, which receives messages and runs timers

void Manager::wake() noexcept {
    fabric::signal_eventfd(wake_.get());
}

void Manager::run() {
    std::array<epoll_event, 32> ready{};
    std::unique_lock guard(lock);
    while (true) {
        const int fd = epoll_.get();
        if (fabric::clock_is_stopped()) {
            pollfd awake{wake_.get(), POLLIN, 0};
            guard.unlock();
            ::poll(&awake, 1, -1);
            guard.lock();
            fabric::clear_eventfd(wake_.get());
            continue;
        }
        const int wait_ms = exchange_.node().arm() ? fabric::time_limit_ms(earliest_deadline()) : 0;
        guard.unlock();
        const int count = ::epoll_wait(fd, ready.data(), static_cast<int>(ready.size()), wait_ms);
        guard.lock();
        exchange_.node().disarm();
        if (!fabric::clock_is_stopped()) { // otherwise, step() does the work
            work(std::span(ready).first(static_cast<std::size_t>(std::max(count, 0))));
        }
    }
}

bool Manager::work(std::span<const epoll_event> events) noexcept {
    bool active = false;
    for (const epoll_event& event : events) {
        if (event.data.u64 == woken) {
            fabric::clear_eventfd(wake_.get());
        } else if (event.data.u64 != exchange_ready) {
            without_exceptions([&] { close_unused(event.data.u64); });
            active = true;
        }
    }
    without_exceptions([&] { active = exchange_.progress() || active; });
    const std::uint64_t now = fabric::now_ns();
    active = active || (!deadlines_.empty() && deadlines_.begin()->first <= now);
    without_exceptions([&] { run_timers(now); });
    return active;
}

bool Manager::step() noexcept {
    const std::scoped_lock guard(lock);
    if (!fabric::clock_is_stopped()) {
        return false; // The thread of the Manager does the work, and must not miss wake().
    }
    std::array<epoll_event, 32> ready{};
    const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), 0);
    return work(std::span(ready).first(static_cast<std::size_t>(std::max(count, 0))));
}

std::uint64_t Manager::earliest_deadline() const noexcept {
    return fabric::earlier(deadlines_.empty() ? 0 : deadlines_.begin()->first,
                           exchange_.next_deadline());
}

std::uint64_t Manager::next_deadline() {
    const std::scoped_lock guard(lock);
    return earliest_deadline();
}

void Manager::clock_runs() noexcept {
    const std::scoped_lock guard(lock);
    exchange_.node().clock_runs();
    wake();
}

void Manager::close_unused(std::uint64_t address) {
    // The program has closed all descriptors of this event channel. It used a call that
    // softverbs does not intercept, so close_file() has not been called yet.
    const auto file = std::ranges::find_if(files_, [address](const auto& each) {
        return reinterpret_cast<std::uint64_t>(each.get()) == address;
    });
    if (file != files_.end()) {
        forget(**file);
        close_file(**file);
    }
}

void Manager::run_timers(std::uint64_t now) {
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
        const auto found = ids_.find(deadlines_.begin()->second);
        deadlines_.erase(deadlines_.begin());
        if (found != ids_.end()) {
            found->second->deadline = 0;
            expired(*found->second);
        }
    }
}

void Manager::set_deadline(Id& id, std::uint64_t after_ns) {
    clear_deadline(id);
    id.deadline = fabric::now_ns() + after_ns;
    deadlines_.emplace(id.deadline, id.handle);
    if (deadlines_.begin()->second == id.handle) {
        wake();
    }
}

void Manager::clear_deadline(Id& id) {
    if (id.deadline != 0) {
        deadlines_.erase({id.deadline, id.handle});
        id.deadline = 0;
    }
}

// The only Manager of this process

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
