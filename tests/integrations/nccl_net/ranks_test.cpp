// SPDX-License-Identifier: BSD-3-Clause
//
// Two ranks, in two processes and in two threads.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "child_process.hpp"
#include "net.hpp"
#include "proxy.hpp"
#include "temporary_directory.hpp"
#include "waiting.hpp"

namespace nccl_net_test {
namespace {

using namespace std::chrono_literals;
using rdmabuf::testing::eventually;

/// A rank of two that transfer operations over several connections, in both directions at once.
class Rank {
  public:
    /// @param socket  a socket to the other rank, for the handles, which NCCL's bootstrap network
    ///                transfers
    Rank(Net& net, int socket) : net_(net), socket_(socket) {}

    /// @throws std::runtime_error with the reason of a failure
    void run() {
        connect();
        for (unsigned round = 0; round < 3; ++round) {
            transfer(round);
        }
        for (const Connection& each : connections_) {
            require(net_.close_send(each.send) == Result::success &&
                        net_.close_receive(each.receive) == Result::success,
                    "close");
        }
    }

  private:
    struct Connection {
        Handle handle{};
        void* listener = nullptr;
        void* send = nullptr;
        void* receive = nullptr;
    };

    void connect() {
        for (Connection& each : connections_) {
            require(net_.listen(0, each.handle, each.listener) == Result::success, "listen");
            require(::send(socket_, each.handle.data(), each.handle.size(), MSG_NOSIGNAL) ==
                        std::ssize(each.handle),
                    "send");
        }
        for (Connection& each : connections_) {
            require(::recv(socket_, each.handle.data(), each.handle.size(), MSG_WAITALL) ==
                        std::ssize(each.handle),
                    "recv");
        }
        const auto connected = [](const Connection& each) {
            return each.send != nullptr && each.receive != nullptr;
        };
        const auto connect_more = [&] {
            for (Connection& each : connections_) {
                require(each.send != nullptr ||
                            net_.connect(0, each.handle, each.send) == Result::success,
                        "connect");
                require(each.receive != nullptr ||
                            net_.accept(each.listener, each.receive) == Result::success,
                        "accept");
            }
        };
        require(
            eventually([&] { return std::ranges::all_of(connections_, connected); }, connect_more),
            "no connection");
        for (const Connection& each : connections_) {
            require(net_.close_listen(each.listener) == Result::success, "closeListen");
        }
    }
    void transfer(unsigned round) {
        std::vector<std::unique_ptr<SendProxy>> sends;
        std::vector<std::unique_ptr<ReceiveProxy>> receives;
        for (unsigned i = 0; i < connections_.size(); ++i) {
            const Operation operation{.protocol = static_cast<Operation::Protocol>(i % 3),
                                      .subs = 1 + (i * 5 + round) % Operation::most,
                                      .seed = i + round};
            const bool dmabuf = (i + round) % 2 == 1;
            sends.push_back(
                std::make_unique<SendProxy>(net_, connections_[i].send, operation, dmabuf));
            receives.push_back(
                std::make_unique<ReceiveProxy>(net_, connections_[i].receive, operation, dmabuf));
        }
        const auto is_done = [](const auto& each) { return each->done(); };
        const auto all_done = [&] {
            return std::ranges::all_of(sends, is_done) && std::ranges::all_of(receives, is_done);
        };
        const auto progress = [&] {
            for (std::size_t i = 0; i < sends.size(); ++i) {
                sends[i]->progress();
                receives[i]->progress();
            }
        };
        require(eventually(all_done, progress), "an operation does not end");
    }

    Net& net_;
    int socket_;
    std::array<Connection, 6> connections_;
};

/// The process of the test calls no verbs: each rank is in a child process. The software devices of
/// the child processes are connected with each other only.
class NcclNetRanks : public ::testing::Test {
  protected:
    template <class Work>
    [[nodiscard]] pid_t become(const Work& work) const {
        return fork_child(200s, [&] {
            ::setenv("SOFTVERBS_DIR", directory_.path().c_str(), 1);
            const LoadedPlugin plugin(NCCL_NET_PLUGIN_PATH);
            const auto net = plugin.net(newest_version);
            require(net->init() == Result::success, "init");
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
        children[rank] = become([&](Net& net) { Rank(net, pair[rank]).run(); });
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
                Rank(net, pair[number]).run();
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

} // namespace
} // namespace nccl_net_test
