// SPDX-License-Identifier: BSD-3-Clause
// A peer process that is stopped, or whose end no socket reports; and two processes without a
// socket. Each end is a child process of the test.
#include <signal.h>
#include <softverbs/softverbs.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/transport.hpp>

#include "child_process.hpp"
#include "temporary_directory.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using namespace std::chrono_literals;
using transport::Channel;
using transport::ChannelAddress;
using transport::Completion;
using transport::Endpoint;
using transport::EndpointOptions;
using transport::Handle;
using transport::Request;

template <class T>
T value(Result<T> result) {
    return std::move(result).value();
}

/// An endpoint with memory and a channel to the other process.
struct ConnectedEnd {
    explicit ConnectedEnd(const EndpointOptions& options)
        : endpoint(value(Endpoint::open(Context::open_first(), Resolver(), options))),
          memory(value(endpoint.register_memory(bytes.data(), bytes.size()))) {}
    ConnectedEnd(int socket, bool listens, const EndpointOptions& options) : ConnectedEnd(options) {
        std::array<std::byte, Handle::wire_size> handle{};
        if (listens) {
            auto listener = value(endpoint.listen("127.0.0.1"));
            if (::send(socket, listener.handle().bytes().data(), handle.size(), 0) < 0) {
                throw std::runtime_error("send");
            }
            channel.emplace(value(listener.accept(testing::time_limit)));
        } else {
            if (::recv(socket, handle.data(), handle.size(), MSG_WAITALL) !=
                static_cast<ssize_t>(handle.size())) {
                throw std::runtime_error("recv");
            }
            channel.emplace(value(endpoint.connect(*Handle::decode(handle), testing::time_limit)));
        }
    }
    /// Creates an end that is connected by exchanged addresses. The socket only transfers the
    /// addresses. @param before_connect  called between the exchange and connect()
    ConnectedEnd(int socket, const EndpointOptions& options,
                 const std::function<void()>& before_connect)
        : ConnectedEnd(options) {
        auto prepared = value(endpoint.prepare_channel());
        std::array<std::byte, ChannelAddress::wire_size> theirs{};
        const auto ours = prepared.address().bytes();
        if (::send(socket, ours.data(), ours.size(), 0) < 0 ||
            ::recv(socket, theirs.data(), theirs.size(), MSG_WAITALL) !=
                static_cast<ssize_t>(theirs.size())) {
            throw std::runtime_error("the addresses could not be exchanged");
        }
        before_connect();
        channel.emplace(value(std::move(prepared).connect(value(ChannelAddress::decode(theirs)))));
    }
    /// Sends a short message, and receives one.
    void exchange() {
        Request sent;
        Request received;
        if (channel->irecv(memory, bytes.data(), 100, 1, received) ||
            channel->isend(memory, bytes.data() + 100, 100, 1, sent) ||
            channel->wait(sent, testing::time_limit).error ||
            channel->wait(received, testing::time_limit).bytes != 100) {
            throw std::runtime_error("the exchange has failed");
        }
    }

    std::vector<std::byte> bytes = std::vector<std::byte>(1U << 20U);
    Endpoint endpoint;
    transport::Memory memory;
    std::optional<Channel> channel;
};

class StoppedPeer : public ::testing::Test {
  protected:
    /// Runs @p survivor, whose peer sends itself @p signal after both have received a message. A
    /// message that a process has sent can get lost if the process is killed.
    void run(int signal, const EndpointOptions& options,
             const std::function<int(ConnectedEnd&)>& survivor) {
        const auto children = fork_pair(
            2 * testing::time_limit,
            [&](int socket) {
                ::setenv("SOFTVERBS_DIR", directory_.path().c_str(), 1);
                ConnectedEnd end(socket, true, options);
                end.exchange();
                if (::send(socket, "r", 1, 0) != 1) {
                    throw std::runtime_error("send");
                }
                return survivor(end);
            },
            [&](int socket) {
                ::setenv("SOFTVERBS_DIR", directory_.path().c_str(), 1);
                ConnectedEnd end(socket, false, options);
                end.exchange();
                char byte = 0;
                if (::recv(socket, &byte, 1, 0) != 1) {
                    throw std::runtime_error("recv");
                }
                ::kill(::getpid(), signal);
                return 2;
            });
        const int status = status_of_child(children[0]);
        EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
        EXPECT_EQ(WEXITSTATUS(status), 0);
        EXPECT_EQ(::kill(children[1], SIGKILL), 0);
        static_cast<void>(status_of_child(children[1]));
    }
    /// The device reports a peer that does not respond after 3 retransmissions of 67 ms. A process
    /// that only waits for a processor responds earlier.
    static inline const EndpointOptions quick = {.heartbeat = std::chrono::milliseconds(20),
                                                 .linger = std::chrono::milliseconds(50),
                                                 .ack_timeout = 14,
                                                 .retry_count = 3};

    [[nodiscard]] const std::string& directory() const { return directory_.path(); }

  private:
    TemporaryDirectory directory_;
};

/// Expects that a request has failed with one of these errors. @return the exit status of a child
int expect_error(const Completion& completion, std::initializer_list<int> errors) {
    if (completion.done && completion.bytes == 0 &&
        std::find(errors.begin(), errors.end(), completion.error.value()) != errors.end()) {
        return 0;
    }
    std::fprintf(stderr, "done %d, error %s\n", static_cast<int>(completion.done),
                 completion.error.message().c_str());
    return 1;
}

TEST_F(StoppedPeer, ends_requests_by_the_timeout) {
    // The time is also the limit of the exchange before the peer is stopped.
    // The device, which gives up a stopped process on softverbs, must not end the requests before.
    EndpointOptions options = {.timeout = 3000ms, .linger = 50ms, .ack_timeout = 20};
    for (const std::size_t length : {std::size_t{100}, std::size_t{200000}}) {
        run(SIGSTOP, options, [length](ConnectedEnd& end) {
            Request request;
            const std::error_code error =
                end.channel->irecv(end.memory, end.bytes.data(), length, 2, request);
            if (error) {
                return 3;
            }
            const int result =
                expect_error(end.channel->wait(request, testing::time_limit), {ETIMEDOUT});
            static_cast<void>(end.channel->close());
            return result;
        });
    }
}

TEST_F(StoppedPeer, that_is_killed_is_found_by_the_keepalive_if_no_sockets_are_kept) {
    EndpointOptions options = quick;
    options.keep_sockets = false;
    run(SIGKILL, options, [](ConnectedEnd& end) {
        Request request;
        if (end.channel->irecv(end.memory, end.bytes.data(), 100, 2, request)) {
            return 3;
        }
        return expect_error(end.channel->wait(request, testing::time_limit), {EHOSTUNREACH});
    });
}

class ExchangedAddresses : public StoppedPeer {
  protected:
    /// Runs two processes that exchange addresses and then messages. The first process calls @p
    /// before_connect before it connects. @return the exit statuses
    std::array<int, 2> connect(const EndpointOptions& options,
                               const std::function<void()>& before_connect,
                               const std::function<int(ConnectedEnd&)>& second) {
        const auto in_directory = [&](const std::function<int(int)>& role) {
            return [this, role](int socket) {
                ::setenv("SOFTVERBS_DIR", directory().c_str(), 1);
                return role(socket);
            };
        };
        const auto children = fork_pair(2 * testing::time_limit, in_directory([&](int socket) {
                                            ConnectedEnd end(socket, options, before_connect);
                                            end.exchange();
                                            return 0;
                                        }),
                                        in_directory([&](int socket) {
                                            ConnectedEnd end(socket, options, [] {});
                                            return second(end);
                                        }));
        return {status_of_child(children[0]), status_of_child(children[1])};
    }
};

TEST_F(ExchangedAddresses, connect_two_processes_of_which_one_is_late) {
    // A packet on a queue pair of the channel would fail after 5 retransmissions of 34 ms.
    EndpointOptions options = quick;
    options.ack_timeout = 13;
    options.retry_count = 5;
    const std::array<int, 2> sockets = connected_sockets(testing::time_limit);
    const auto statuses = connect(
        options,
        [&] {
            char byte = 0;
            if (::recv(sockets[0], &byte, 1, 0) != 1) {
                throw std::runtime_error("recv");
            }
        },
        [&](ConnectedEnd& end) {
            // Each repetition of the datagram is at least 2 ms after the one before.
            const auto packets = [] {
                softverbs_counters counters{};
                softverbs_get_counters(&counters);
                return counters.sent;
            };
            const std::uint64_t before = packets();
            // An endpoint looks at the clock once in 256 calls.
            const auto progress = [&] {
                for (int i = 0; i < 256; ++i) {
                    end.endpoint.progress();
                }
            };
            if (!testing::eventually([&] { return packets() >= before + 400; }, progress)) {
                throw std::runtime_error("the end has not repeated its datagram");
            }
            if (::send(sockets[1], "c", 1, 0) != 1) {
                throw std::runtime_error("send");
            }
            end.exchange();
            return 0;
        });
    EXPECT_EQ(statuses, (std::array{0, 0}));
    ::close(sockets[0]);
    ::close(sockets[1]);
}

TEST_F(ExchangedAddresses, of_a_process_that_is_killed_before_it_connects_end_with_etimedout) {
    EndpointOptions options = quick;
    options.handshake = 500ms;
    const auto statuses = connect(
        options, [] { ::kill(::getpid(), SIGKILL); },
        [](ConnectedEnd& end) {
            Request request;
            if (end.channel->isend(end.memory, end.bytes.data(), 100, 2, request)) {
                return 3;
            }
            return expect_error(end.channel->wait(request, testing::time_limit), {ETIMEDOUT});
        });
    EXPECT_TRUE(WIFSIGNALED(statuses[0]));
    EXPECT_EQ(statuses[1], 0);
}

} // namespace
} // namespace rdmabuf
