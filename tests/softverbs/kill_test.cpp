// SPDX-License-Identifier: BSD-3-Clause
// Two processes run traffic (endless_traffic.cpp), and one of them is killed at varying moments.
// The other one must get an error completion soon, and no files may remain.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "temporary_directory.hpp"
#include "waiting.hpp"

namespace {

constexpr int time_limit_ms = std::chrono::milliseconds(rdmabuf::testing::time_limit).count();

/// One end of the connection, which runs in another process.
class End {
  public:
    /// @param socket  socket to the other end; the constructor closes it
    explicit End(int socket) {
        std::array<int, 2> output{};
        std::array<int, 2> control{};
        if (::pipe2(output.data(), O_CLOEXEC) != 0 ||
            ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control.data()) != 0) {
            throw std::runtime_error("pipe2 or socketpair");
        }
        posix_spawn_file_actions_t actions{};
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
        ::posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
        ::posix_spawn_file_actions_adddup2(&actions, control[1], STDERR_FILENO);
        const std::string program = ENDLESS_TRAFFIC;
        std::array<char*, 2> arguments{const_cast<char*>(program.c_str()), nullptr};
        const int error =
            ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ);
        ::posix_spawn_file_actions_destroy(&actions);
        for (const int fd : {socket, output[1], control[1]}) {
            ::close(fd);
        }
        output_ = output[0];
        control_ = control[0];
        if (error != 0) {
            throw std::runtime_error("posix_spawn of " + program);
        }
    }
    ~End() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
        ::close(output_);
        ::close(control_);
    }
    End(const End&) = delete;
    End& operator=(const End&) = delete;

    /// Returns the next line of the program's output. Returns an empty string if it has ended or
    /// the time limit expires.
    [[nodiscard]] std::string line() const {
        std::string text;
        for (char next = 0; next != '\n';) {
            pollfd poll{output_, POLLIN, 0};
            if (::poll(&poll, 1, time_limit_ms) != 1 || ::read(output_, &next, 1) != 1) {
                return {};
            }
            text += next;
        }
        text.pop_back();
        return text;
    }
    void kill() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    void stop() const { ASSERT_EQ(::write(control_, "q", 1), 1); }
    /// Waits for the end of the process. Returns its exit status, or -1 if it was killed.
    [[nodiscard]] int wait() {
        int status = 0;
        if (::waitpid(pid_, &status, 0) != pid_ || !WIFEXITED(status)) {
            return -1;
        }
        pid_ = -1;
        return WEXITSTATUS(status);
    }

  private:
    pid_t pid_ = -1;
    int output_ = -1;
    int control_ = -1;
};

std::set<std::string> names_in(const std::string& directory) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        names.insert(entry.path().filename());
    }
    return names;
}

class Kill : public testing::Test {
  protected:
    void SetUp() override { ASSERT_EQ(::setenv("SOFTVERBS_DIR", directory_.path().c_str(), 1), 0); }
    /// Starts both ends and waits until they run traffic.
    void start() {
        std::array<int, 2> sockets{};
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
        one_.emplace(sockets[0]);
        other_.emplace(sockets[1]);
        ASSERT_EQ(one_->line(), "running");
        ASSERT_EQ(other_->line(), "running");
    }

    TemporaryDirectory directory_;
    std::optional<End> one_;
    std::optional<End> other_;
};

TEST_F(Kill, OfEitherSideAtAnyMomentEndsTheOthersWorkAndLeavesNothing) {
    constexpr int rounds = 200;
    std::mt19937 random(20261121);
    std::uniform_int_distribution<int> microseconds(0, 4000);
    for (int round = 0; round < rounds; ++round) {
        SCOPED_TRACE(round);
        start();
        if (HasFatalFailure()) {
            return;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(microseconds(random)));
        End& victim = round % 2 == 0 ? *one_ : *other_;
        End& survivor = round % 2 == 0 ? *other_ : *one_;
        victim.kill();
        ASSERT_EQ(survivor.line(), "transport retry counter exceeded");
        ASSERT_EQ(survivor.wait(), 0);
        // The survivor has removed its own files. The next process that starts removes those of the
        // killed one.
        ASSERT_LE(names_in(directory_.path()).size(), 3U);
    }
    start();
    if (HasFatalFailure()) {
        return;
    }
    EXPECT_EQ(names_in(directory_.path()).size(), 6U) << "a lock and two sockets each";
    one_->stop();
    EXPECT_EQ(one_->line(), "stopped");
    EXPECT_EQ(one_->wait(), 0);
    EXPECT_NE(other_->line(), "");
    EXPECT_EQ(other_->wait(), 0);
    EXPECT_TRUE(names_in(directory_.path()).empty());
}

} // namespace
