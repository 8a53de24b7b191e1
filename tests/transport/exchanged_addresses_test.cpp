// SPDX-License-Identifier: BSD-3-Clause
// Two processes that are connected by exchanged addresses: no socket reports the end of the peer.
// Each end is a child process of the test.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/transport.hpp>

#include "child_process.hpp"
#include "temporary_directory.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using transport::Channel;
using transport::ChannelAddress;
using transport::Completion;
using transport::Endpoint;
using transport::Request;

template <class T>
T value(Result<T> result) {
    return std::move(result).value();
}

/// An endpoint with memory and a channel to the other process.
struct ConnectedEnd {
    /// @param socket  only transfers the addresses
    explicit ConnectedEnd(int socket) {
        auto prepared = value(endpoint.prepare_channel());
        std::array<std::byte, ChannelAddress::wire_size> theirs{};
        const auto ours = prepared.address().bytes();
        if (::send(socket, ours.data(), ours.size(), 0) < 0 ||
            ::recv(socket, theirs.data(), theirs.size(), MSG_WAITALL) !=
                static_cast<ssize_t>(theirs.size())) {
            throw std::runtime_error("the addresses could not be exchanged");
        }
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

    std::vector<std::byte> bytes = std::vector<std::byte>(200);
    /// The device reports a peer that does not respond after 3 retransmissions of 67 ms. A process
    /// that only waits for a processor responds earlier.
    Endpoint endpoint = value(Endpoint::open(Context::open_first(), Resolver(),
                                             {.heartbeat = std::chrono::milliseconds(20),
                                              .linger = std::chrono::milliseconds(50),
                                              .ack_timeout = 14,
                                              .retry_count = 3}));
    transport::Memory memory = value(endpoint.register_memory(bytes.data(), bytes.size()));
    std::optional<Channel> channel;
};

TEST(ExchangedAddresses, connect_two_processes_of_which_the_keepalive_finds_one_killed) {
    const TemporaryDirectory directory;
    const auto in_directory = [&](const std::function<void(int)>& role) {
        return [&, role](int socket) {
            ::setenv("SOFTVERBS_DIR", directory.path().c_str(), 1);
            role(socket);
            return 0;
        };
    };
    const auto children = fork_pair(
        2 * testing::time_limit, in_directory([](int socket) {
            ConnectedEnd end(socket);
            end.exchange();
            // A message that a process has sent can get lost if the process is killed.
            char byte = 0;
            if (::recv(socket, &byte, 1, 0) == 1) {
                ::kill(::getpid(), SIGKILL);
            }
        }),
        in_directory([](int socket) {
            ConnectedEnd end(socket);
            end.exchange();
            EXPECT_EQ(::send(socket, "r", 1, 0), 1);
            Request request;
            EXPECT_FALSE(end.channel->irecv(end.memory, end.bytes.data(), 100, 2, request));
            const Completion completion = end.channel->wait(request, testing::time_limit);
            EXPECT_TRUE(completion.done);
            EXPECT_EQ(completion.error.value(), EHOSTUNREACH);
            EXPECT_EQ(completion.bytes, 0U);
        }));
    expect_success(children[1]);
    const int status = status_of_child(children[0]);
    EXPECT_TRUE(WIFSIGNALED(status));
}

} // namespace
} // namespace rdmabuf
