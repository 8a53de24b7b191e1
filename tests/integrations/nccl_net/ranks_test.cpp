// SPDX-License-Identifier: BSD-3-Clause
//
// Two ranks, in two processes and in two threads.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "child_process.hpp"
#include "net.hpp"
#include "rank.hpp"
#include "temporary_directory.hpp"

namespace nccl_net_test {
namespace {

using namespace std::chrono_literals;

constexpr unsigned connections = 6;

/// The test's own process makes no call of verbs: each rank is in a child of it, which has a
/// software device that it shares with the other only.
class NcclNetRanks : public ::testing::Test {
  protected:
    template <class Work>
    [[nodiscard]] pid_t become(const Work& work) const {
        return fork_child(200s, [&] {
            ::setenv("SOFTVERBS_DIR", directory_.path().c_str(), 1);
            const LoadedPlugin plugin(NCCL_NET_PLUGIN_PATH);
            const auto net = plugin.net(newest_version);
            if (net->init() != Result::success) {
                throw std::runtime_error(take_log());
            }
            work(*net);
            net->finalize();
            return 0;
        });
    }

  private:
    TemporaryDirectory directory_;
};

TEST_F(NcclNetRanks, InTwoProcesses) {
    const auto pair = connected_sockets(60s);
    std::array<pid_t, 2> children{};
    for (unsigned rank = 0; rank < 2; ++rank) {
        children[rank] = become([&](Net& net) { Rank(net, pair[rank], rank, connections).run(); });
    }
    for (const int socket : pair) {
        ::close(socket);
    }
    for (const pid_t child : children) {
        expect_success(child);
    }
}

TEST_F(NcclNetRanks, InTwoThreads) {
    expect_success(become([](Net& net) {
        const auto pair = connected_sockets(60s);
        std::array<std::exception_ptr, 2> failures;
        const auto rank = [&](unsigned number) {
            try {
                Rank(net, pair[number], number, connections).run();
            } catch (...) {
                failures[number] = std::current_exception();
            }
        };
        std::thread other(rank, 1U);
        rank(0U);
        other.join();
        for (const auto& failure : failures) {
            if (failure) {
                std::rethrow_exception(failure);
            }
        }
    }));
}

TEST_F(NcclNetRanks, OfWhichOneIsKilled) {
    const auto pair = connected_sockets(60s);
    const pid_t victim = become([&](Net& net) {
        Handle handle{};
        void* listener = nullptr;
        void* receive = nullptr;
        net.listen(0, handle, listener);
        ::send(pair[0], handle.data(), handle.size(), MSG_NOSIGNAL);
        while (receive == nullptr) {
            net.accept(listener, receive);
        }
        ::raise(SIGKILL);
    });
    const pid_t survivor = become([&](Net& net) {
        Handle handle{};
        void* send = nullptr;
        ASSERT_EQ(::recv(pair[1], handle.data(), handle.size(), MSG_WAITALL), 128);
        while (send == nullptr) {
            ASSERT_EQ(net.connect(0, handle, send), Result::success);
        }
        std::array<std::byte, 64> data{};
        void* memory = nullptr;
        ASSERT_EQ(net.register_memory(send, data.data(), data.size(), abi::pointer_host, memory),
                  Result::success);
        void* request = nullptr;
        Result result = net.isend(send, data.data(), data.size(), 0, memory, request);
        int done = 0;
        while (request != nullptr && result == Result::success && done == 0) {
            result = net.test(request, done, nullptr);
        }
        EXPECT_EQ(result, Result::system_error) << "it waits for one that is dead";
        EXPECT_THAT(take_log(), ::testing::HasSubstr("W NET/rdmabuf : soft0: "));
        EXPECT_EQ(net.deregister_memory(send, memory), Result::success);
        EXPECT_EQ(net.close_send(send), Result::success);
    });
    for (const int socket : pair) {
        ::close(socket);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(victim, &status, 0), victim);
    EXPECT_TRUE(WIFSIGNALED(status));
    expect_success(survivor);
}

} // namespace
} // namespace nccl_net_test
