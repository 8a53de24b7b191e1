// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "fabric/uncancellable.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Returns the state of a process or a thread as proc_pid_stat(5) describes it, such as 'R'.
/// Returns 0 if it has ended or its state cannot be read.
/// @param directory  "/proc", or "/proc/self/task" for a thread of this process
inline char scheduling_state(const char* directory, pid_t id) noexcept {
    const NoCancellation not_cancelled;
    std::array<char, 48> path{};
    std::snprintf(path.data(), path.size(), "%s/%d/stat", directory, static_cast<int>(id));
    const UniqueFd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
    std::array<char, 64> text{}; // "<pid> (<name of at most 15 characters>) <state>"
    if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) {
        return 0;
    }
    const char* const end_of_name = std::strrchr(text.data(), ')');
    return end_of_name != nullptr && end_of_name[1] == ' ' ? end_of_name[2] : '\0';
}

} // namespace softverbs::fabric
