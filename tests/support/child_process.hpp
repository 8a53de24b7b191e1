// SPDX-License-Identifier: BSD-3-Clause
// Child processes of tests whose own process makes no verbs call.
#pragma once

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <system_error>

#include <gtest/gtest.h>

/// Starts a child that runs @p body and exits with its result, or with 1 after an exception or a
/// failed expectation. SIGALRM ends the child when the time limit expires.
inline pid_t fork_child(std::chrono::seconds limit, const std::function<int()>& body) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child != 0) {
        return child;
    }
    ::alarm(static_cast<unsigned>(limit.count()));
    int status = 1;
    try {
        status = body();
    } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
    }
    // softverbs removes its files in exit(3). NOLINTNEXTLINE(concurrency-mt-unsafe)
    std::exit(status == 0 && ::testing::Test::HasFailure() ? 1 : status);
}

/// Returns two connected stream sockets on which recv(2) fails when @p patience expires; 0: never.
inline std::array<int, 2> connected_sockets(std::chrono::seconds patience) {
    std::array<int, 2> sockets{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
        throw std::system_error(errno, std::system_category(), "socketpair");
    }
    const timeval limit{.tv_sec = patience.count(), .tv_usec = 0};
    for (const int socket : sockets) {
        EXPECT_EQ(::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    }
    return sockets;
}

/// Starts two children as fork_child() does, each with one end of a connected socket without
/// SO_RCVTIMEO, with which recv(2) fails with EINTR when a stopped process continues.
inline std::array<pid_t, 2> fork_pair(std::chrono::seconds limit,
                                      const std::function<int(int)>& one,
                                      const std::function<int(int)>& other) {
    const std::array<int, 2> sockets = connected_sockets(std::chrono::seconds(0));
    const auto start = [&](const std::function<int(int)>& body, std::size_t own) {
        return fork_child(limit, [&] {
            ::close(sockets[1 - own]);
            return body(sockets[own]);
        });
    };
    const std::array<pid_t, 2> children{start(one, 0), start(other, 1)};
    ::close(sockets[0]);
    ::close(sockets[1]);
    return children;
}

/// Waits for a child. @return its wait status, for WIFEXITED() and the like
inline int status_of_child(pid_t child) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
}

inline void expect_success(pid_t child) {
    const int status = status_of_child(child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
}
