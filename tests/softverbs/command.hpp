// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "waiting.hpp"

/// The output of a shell command on stdout and stderr, and its exit status.
struct CommandResult {
    std::string output;
    int exit_status = -1; // negative: it was killed by that signal
};

inline CommandResult run_command(const std::string& command) {
    CommandResult result;
    FILE* const pipe = ::popen(("timeout " + std::to_string(rdmabuf::testing::time_limit.count()) +
                                " " + command + " 2>&1")
                                   .c_str(),
                               "re");
    if (pipe == nullptr) {
        return result;
    }
    std::array<char, 4096> bytes{};
    while (const std::size_t count = std::fread(bytes.data(), 1, bytes.size(), pipe)) {
        result.output.append(bytes.data(), count);
    }
    const int status = ::pclose(pipe);
    result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return result;
}

/// Runs a disabled test of this program in a process of its own.
/// @param environment  of the process, as "NAME=value"; empty: that of this process
inline CommandResult run_disabled_test(const std::string& name,
                                       const std::string& environment = "") {
    return run_command("env " + environment + " " +
                       std::filesystem::read_symlink("/proc/self/exe").string() +
                       " --gtest_also_run_disabled_tests --gtest_filter=" + name);
}
