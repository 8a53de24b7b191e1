// SPDX-License-Identifier: BSD-3-Clause
#include "cm/manager.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

#include "cm/descriptors.hpp"
#include "control/settings.hpp"
#include "fabric/background_thread.hpp"
#include "fabric/clock.hpp"
#include "fabric/report.hpp"
#include "fabric/system_error.hpp"
#include "objects/process.hpp"

namespace softverbs::cm {

namespace {

/// Default timeout exponent for the reply of a peer, as in the kernel: 4.096 µs * 2^20, about 4
/// seconds. The kernel sends a message up to 16 times, so softverbs waits 16 times as long.
constexpr unsigned default_response_timeout = 20;
constexpr unsigned max_response_timeout = 31;

constexpr std::uint64_t exchange_ready = 1;
constexpr std::uint64_t network_ready = 2;
constexpr std::uint64_t woken = 3; // larger values: a ChannelFile's address

unsigned response_timeout_from_environment() {
    const char* const text = ::secure_getenv("SOFTVERBS_CM_TIMEOUT");
    if (text == nullptr || *text == '\0') {
        return default_response_timeout;
    }
    unsigned value = 0;
    const char* const end_of_text = text + std::strlen(text);
    const auto [end, error] = std::from_chars(text, end_of_text, value);
    if (error != std::errc() || end != end_of_text || value > max_response_timeout) {
        refuse_setting("SOFTVERBS_CM_TIMEOUT", text, "a number from 0 to 31");
    }
    return value;
}

/// Calls a function in the manager's thread. If it throws an exception because memory or file
/// descriptors are exhausted, the process continues. The connection manager message that the
/// function was handling is then lost, as a packet can be lost on a network.
template <class Function>
void without_exceptions(const Function& function) noexcept {
    try {
        function();
    } catch (const std::exception&) {
        fabric::report(
            "a message of rdma_cm is lost, because memory or descriptors are exhausted; raise "
            "ulimit -v, ulimit -n or the memory limit");
    }
}

} // namespace

Manager::Manager()
    : network_(process().network.addresses.empty()
                   ? nullptr
                   : std::make_unique<NetworkExchange>(
                         process().network, static_cast<NetworkExchange::Requests&>(*this))),
      exchange_(std::make_unique<LocalExchange>(
          [this](unsigned slot) { return network_ == nullptr || network_->listen(slot); })),
      registry_(std::make_unique<Registry>(*exchange_)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      response_timeout_(response_timeout_from_environment()) {
    const auto watch = [this](int fd, std::uint64_t what) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = what;
        if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
            fabric::throw_error(errno, "cannot watch a descriptor with epoll");
        }
    };
    if (!epoll_ || !wake_) {
        fabric::throw_error(errno, "cannot watch a descriptor with epoll");
    }
    watch(exchange_->fd(), exchange_ready);
    if (network_ != nullptr) {
        network_->set_process(exchange_->self().process);
        watch(network_->fd(), network_ready);
    }
    watch(wake_.get(), woken);
    thread_ = fabric::start_background_thread("softverbs-cm", [this] { run(); });
}

void Manager::at_exit() noexcept {
    // Wait for the lock for at most 0.1 s. If the lock's owner was interrupted by a signal handler
    // that called exit(3), the lock is never released.
    bool locked = lock.try_lock();
    for (int waited_ms = 0; !locked && waited_ms < 100; ++waited_ms) {
        fabric::pause_ns(1'000'000);
        locked = lock.try_lock();
    }
    registry_->release_all();
    exchange_->remove_files();
    registry_->remove_unused();
    if (locked) {
        lock.unlock();
    }
}

void Manager::abandon() noexcept {
    exchange_->abandon();
    if (network_ != nullptr) {
        network_->abandon();
    }
    registry_->abandon();
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
    const std::uint64_t one = 1;
    static_cast<void>(::write(wake_.get(), &one, sizeof one));
}

void Manager::run() {
    std::array<epoll_event, 32> ready{};
    std::unique_lock guard(lock);
    while (true) {
        if (fabric::clock_is_stopped()) {
            pollfd awake{wake_.get(), POLLIN, 0};
            guard.unlock();
            ::poll(&awake, 1, -1);
            guard.lock();
            handle(woken);
            continue;
        }
        int wait_ms = -1;
        if (!deadlines_.empty()) {
            const std::uint64_t now = fabric::now_ns();
            const std::uint64_t first = deadlines_.begin()->first;
            constexpr std::uint64_t ns_per_ms = 1'000'000;
            constexpr std::uint64_t longest_ms = 60'000;
            wait_ms = first <= now ? 0
                                   : static_cast<int>(std::min(
                                         (first - now + ns_per_ms - 1) / ns_per_ms, longest_ms));
        }
        const int fd = epoll_.get();
        guard.unlock();
        const int count = ::epoll_wait(fd, ready.data(), static_cast<int>(ready.size()), wait_ms);
        guard.lock();
        if (fabric::clock_is_stopped()) {
            continue; // step() handles the events
        }
        for (int i = 0; i < count; ++i) {
            const std::uint64_t what = ready[static_cast<std::size_t>(i)].data.u64;
            without_exceptions([&] { handle(what); });
        }
        without_exceptions([&] { run_timers(fabric::now_ns()); });
    }
}

bool Manager::step() noexcept {
    const std::scoped_lock guard(lock);
    if (!fabric::clock_is_stopped()) {
        return false; // The thread of the Manager does the work, and must not miss wake().
    }
    std::array<epoll_event, 32> ready{};
    bool active = false;
    const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), 0);
    for (int i = 0; i < count; ++i) {
        const std::uint64_t what = ready[static_cast<std::size_t>(i)].data.u64;
        active = active || what != woken;
        without_exceptions([&] { handle(what); });
    }
    const std::uint64_t now = fabric::now_ns();
    const auto is_due = [now](std::uint64_t deadline) { return deadline != 0 && deadline <= now; };
    if (network_ != nullptr && is_due(network_->next_deadline())) {
        active = true;
        without_exceptions([&] { network_->progress(*this); });
    }
    active = active || (!deadlines_.empty() && is_due(deadlines_.begin()->first));
    without_exceptions([&] { run_timers(now); });
    return active;
}

std::uint64_t Manager::next_deadline() {
    const std::scoped_lock guard(lock);
    const std::uint64_t own = deadlines_.empty() ? 0 : deadlines_.begin()->first;
    const std::uint64_t other = network_ == nullptr ? 0 : network_->next_deadline();
    return own == 0 || (other != 0 && other < own) ? other : own;
}

void Manager::clock_runs() noexcept {
    const std::scoped_lock guard(lock);
    if (network_ != nullptr) {
        network_->set_timer();
    }
    wake();
}

void Manager::handle(std::uint64_t what) {
    if (what == exchange_ready) {
        exchange_->progress(*this);
    } else if (what == network_ready) {
        network_->progress(*this);
    } else if (what == woken) {
        std::uint64_t value = 0;
        static_cast<void>(::read(wake_.get(), &value, sizeof value));
    } else {
        // The program has closed all descriptors of this event channel. It used a call that
        // softverbs does not intercept, so close_file() has not been called yet.
        const auto file = std::ranges::find_if(files_, [what](const auto& each) {
            return reinterpret_cast<std::uint64_t>(each.get()) == what;
        });
        if (file != files_.end()) {
            forget(**file);
            close_file(**file);
        }
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

} // namespace softverbs::cm
