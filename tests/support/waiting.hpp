// SPDX-License-Identifier: BSD-3-Clause
// How tests wait. scripts/check-waiting refuses other clocks and sleeps below tests/.
#pragma once

#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

namespace rdmabuf::testing {

/// The time limit of each wait in a test. A busy machine must not exceed it; only a broken test or
/// a broken library does.
inline constexpr std::chrono::seconds time_limit{60};

/// Waits until @p condition returns true. Calls @p step, which makes progress, each time that
/// @p condition returns false. @return false if the time limit expired
template <class Condition, class Step>
[[nodiscard]] bool eventually(const Condition& condition, const Step& step) {
    // A condition that needs more calls is likely to wait for another thread, which may need this
    // processor.
    constexpr unsigned calls_without_sleep = 1000;
    const auto end = std::chrono::steady_clock::now() + time_limit;
    for (unsigned calls = 1; !condition(); ++calls) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
        step();
        if (calls > calls_without_sleep) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }
    return true;
}

/// Waits until @p condition returns true. @return false if the time limit expired
template <class Condition>
[[nodiscard]] bool eventually(const Condition& condition) {
    return eventually(condition, [] { std::this_thread::yield(); });
}

[[nodiscard]] inline bool is_readable(int fd) {
    pollfd request{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&request, 1, 0) == 1;
}

/// Waits until a descriptor is readable. @return false if the time limit expired
[[nodiscard]] inline bool becomes_readable(int fd) {
    return eventually([fd] { return is_readable(fd); });
}

/// Returns the state of a thread of any process, as in proc(5): 'S' is asleep, 'T' is stopped.
/// Returns 0 if there is no such thread.
[[nodiscard]] inline char state_of_thread(pid_t thread) {
    std::ifstream file("/proc/" + std::to_string(thread) + "/stat");
    std::string line;
    std::getline(file, line);
    // The name of the program, in parentheses, may contain any characters.
    const std::size_t name_end = line.rfind(") ");
    return name_end == std::string::npos ? '\0' : line.at(name_end + 2);
}

/// Returns true if a thread is asleep, as in a system call that waits.
[[nodiscard]] inline bool is_asleep(pid_t thread) {
    return state_of_thread(thread) == 'S';
}

/// Returns true if all threads of @p process, except the calling one, are asleep at the same time.
/// Then nothing happens in the process until a signal, another process or a timer wakes it.
/// @param looks  how many times the threads are compared with their first state
[[nodiscard]] inline bool is_at_rest(pid_t process, unsigned looks = 1) {
    // Returns the voluntary context switches of the other threads; nullopt if one is not asleep.
    const auto look = [process]() -> std::optional<std::string> {
        std::string threads;
        const std::string tasks = "/proc/" + std::to_string(process) + "/task";
        std::error_code ended;
        for (const auto& task : std::filesystem::directory_iterator(tasks, ended)) {
            std::ifstream file(task.path() / "status");
            const bool is_caller = task.path().filename() == std::to_string(::gettid());
            for (std::string line; !is_caller && std::getline(file, line);) {
                if (line.starts_with("State:") && line.find("S (sleeping)") == std::string::npos) {
                    return std::nullopt;
                }
                threads += line.starts_with("voluntary_ctxt_switches:") ? line : "";
            }
        }
        return threads;
    };
    // A thread that has run between two looks has another number of context switches.
    const std::optional<std::string> first = look();
    while (first && looks > 0 && look() == first) {
        --looks;
    }
    return first && looks == 0;
}

/// Returns true if @p action takes @p duration or longer, for tests of a documented timeout. There
/// is no function for the opposite: a busy machine can make each action longer.
template <class Action>
[[nodiscard]] bool lasts_at_least(std::chrono::nanoseconds duration, const Action& action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    return std::chrono::steady_clock::now() - begin >= duration;
}

} // namespace rdmabuf::testing
