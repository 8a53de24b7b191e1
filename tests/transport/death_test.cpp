// SPDX-License-Identifier: BSD-3-Clause
// Two processes exchange messages, and one of them is killed after a number of steps. The test is
// repeated for many numbers of steps. Both processes are children of the test program, which calls
// no verbs.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/transport.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "child_process.hpp"
#include "temporary_directory.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using namespace std::chrono_literals;
using transport::Channel;
using transport::Completion;
using transport::Endpoint;
using transport::Handle;
using transport::Request;

constexpr std::size_t size = 1U << 20U;
/// Lengths of messages that are copied, gathered by the device, and transferred by RDMA.
constexpr std::array<std::size_t, 4> lengths = {64, 5000, 200000, size};

/// One end of the channel, with its endpoint and memory.
class End {
  public:
    End(int socket, bool listens)
        : endpoint_(value(Endpoint::open(
              Context::open_first(), Resolver({memfds_}),
              {.heartbeat = 20ms, .linger = 50ms, .ack_timeout = 12, .retry_count = 3}))),
          memory_(value(endpoint_.register_memory(reinterpret_cast<const void*>(buffer_.address()),
                                                  2 * size))) {
        if (listens) {
            auto listener = value(endpoint_.listen("127.0.0.1"));
            const auto bytes = listener.handle().bytes();
            check(::send(socket, bytes.data(), bytes.size(), 0) > 0);
            channel_.emplace(value(listener.accept(testing::time_limit)));
        } else {
            std::array<std::byte, Handle::wire_size> bytes{};
            check(::recv(socket, bytes.data(), bytes.size(), MSG_WAITALL) ==
                  static_cast<ssize_t>(bytes.size()));
            channel_.emplace(value(endpoint_.connect(*Handle::decode(bytes), testing::time_limit)));
        }
    }

    /// Sends and receives messages of all lengths until a request fails.
    /// @param step  is called between two tests of a request
    /// @return the error of the first request that failed
    std::error_code exchange(const std::function<void()>& step) {
        for (std::size_t round = 0;; ++round) {
            const std::size_t length = lengths[round % lengths.size()];
            std::array<Request, 2> requests;
            auto* const data = reinterpret_cast<std::byte*>(buffer_.address());
            std::error_code error =
                channel_->irecv(memory_, data + size, length, round, requests[0]);
            if (!error) {
                error = channel_->isend(memory_, data, length, round, requests[1]);
                error = finish(requests[0], step, error);
                error = finish(requests[1], step, error);
            }
            if (error) {
                return error;
            }
        }
    }
    [[nodiscard]] Channel& channel() { return *channel_; }

  private:
    static void check(bool well) {
        if (!well) {
            throw std::runtime_error("the other process has ended");
        }
    }
    template <class T>
    static T value(Result<T> result) {
        if (!result) {
            throw std::runtime_error(result.message());
        }
        return *std::move(result);
    }
    /// Waits for a request. @return @p before, or the error of the request if @p before is none
    std::error_code finish(Request& request, const std::function<void()>& step,
                           std::error_code before) {
        Completion completion;
        const auto done = [&] {
            completion = channel_->test(request);
            return completion.done;
        };
        if (!testing::eventually(done, step)) {
            throw std::runtime_error("a request has not ended");
        }
        return before ? before : completion.error;
    }

    std::shared_ptr<Allocator> memfds_ = make_memfd_exporter();
    Buffer buffer_ = memfds_->allocate(2 * size);
    Endpoint endpoint_;
    transport::Memory memory_;
    std::optional<Channel> channel_;
};

class Death : public ::testing::Test {
  protected:
    /// Runs both roles, each in a process of its own. @return the status of waitpid(2) for the
    /// first
    int run(const std::function<int(int)>& survivor, const std::function<int(int)>& victim) {
        const auto in_directory = [&](const std::function<int(int)>& role) {
            return [&](int socket) {
                ::setenv("SOFTVERBS_DIR", directory_.path().c_str(), 1);
                return role(socket);
            };
        };
        const auto children =
            fork_pair(2 * testing::time_limit, in_directory(survivor), in_directory(victim));
        const int survived = status_of_child(children[0]);
        const int killed = status_of_child(children[1]);
        EXPECT_TRUE(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL);
        return survived;
    }

  private:
    TemporaryDirectory directory_;
};

/// Returns true for the errors of a channel whose peer process has ended: its socket closes, or its
/// device does not respond.
bool is_end_of_peer(std::error_code error) {
    return error.value() == ECONNRESET || error.value() == EHOSTUNREACH;
}

class DeathAfterSteps : public Death, public ::testing::WithParamInterface<bool> {};

TEST_P(DeathAfterSteps, of_a_peer_ends_every_request_and_the_channel_can_be_closed) {
    const bool victim_listens = GetParam();
    for (unsigned steps = 0; steps < 400; steps += steps < 20 ? 1 : 37) {
        SCOPED_TRACE(steps);
        const int status = run(
            [&](int socket) {
                End end(socket, !victim_listens);
                const std::error_code error = end.exchange([] {});
                const std::error_code state = end.channel().close();
                if (!is_end_of_peer(error) || state != error || end.channel().in_flight() != 0) {
                    std::fprintf(stderr, "error %s, state %s\n", error.message().c_str(),
                                 state.message().c_str());
                    return 1;
                }
                return 0;
            },
            [&](int socket) {
                End end(socket, victim_listens);
                unsigned left = steps;
                static_cast<void>(end.exchange([&left] {
                    if (left-- == 0) {
                        ::kill(::getpid(), SIGKILL);
                    }
                }));
                return 2;
            });
        ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
        ASSERT_EQ(WEXITSTATUS(status), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(listening, DeathAfterSteps, ::testing::Bool(), [](const auto& value) {
    return value.param ? "the_victim" : "the_survivor";
});

} // namespace
} // namespace rdmabuf
