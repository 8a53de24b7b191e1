// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace softverbs_test {

/// Moves this process to a network namespace of its own, in which the programs that it starts may
/// set addresses. Returns false if this user may not make one. Call it before there are threads.
[[nodiscard]] inline bool enter_own_network() {
    if (::unshare(CLONE_NEWNET) == 0) {
        return true;
    }
    const std::string user = std::to_string(::geteuid());
    const std::string group = std::to_string(::getegid());
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        return false;
    }
    // Without a user's number in the new namespace, a program loses the capabilities when it
    // starts.
    const auto write = [](const char* file, const std::string& text) {
        EXPECT_TRUE(std::ofstream(file) << text << std::flush) << file;
    };
    write("/proc/self/setgroups", "deny");
    write("/proc/self/uid_map", "0 " + user + " 1");
    write("/proc/self/gid_map", "0 " + group + " 1");
    return true;
}

/// Runs a command of a shell, as ip(8). Returns false, with a failure of the test, if it fails.
inline bool run(const std::string& command) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): there are no other threads yet
    const int status = std::system(command.c_str());
    EXPECT_EQ(status, 0) << command;
    return status == 0;
}

} // namespace softverbs_test
