// SPDX-License-Identifier: BSD-3-Clause
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/bootstrap.hpp>

#include "child_process.hpp"
#include "fails_with.hpp"
#include "raw_peer.hpp"
#include "support.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using bootstrap::Channel;
using bootstrap::Listener;
using rdmabuf::testing::becomes_readable;
using rdmabuf::testing::closed_on_exec;
using rdmabuf::testing::error_of;
using rdmabuf::testing::eventually;
using rdmabuf::testing::fails_with;
using rdmabuf::testing::is_asleep;
using rdmabuf::testing::is_readable;
using rdmabuf::testing::lasts_at_least;
using rdmabuf::testing::open_descriptors;
using namespace std::chrono_literals;

constexpr auto long_enough = rdmabuf::testing::time_limit;

template <class Value>
bool is_ready(const std::future<Value>& future) {
    return future.wait_for(0s) == std::future_status::ready;
}

class Bootstrap : public ::testing::Test {
  protected:
    void TearDown() override { EXPECT_EQ(open_descriptors(), before_) << "descriptors leaked"; }

  private:
    std::set<int> before_ = open_descriptors();
};

struct Pair {
    Channel connected;
    Channel accepted;
};

Pair make_pair(Listener& listener, const std::string& host) {
    auto accepted = std::async(std::launch::async, [&] { return listener.accept(long_enough); });
    Channel connected = Channel::connect(host, listener.port(), long_enough);
    return {std::move(connected), accepted.get()};
}

Pair make_pair() {
    Listener listener(0, "127.0.0.1");
    return make_pair(listener, "127.0.0.1");
}

/// Runs both sides at once, and returns what each threw.
template <class First, class Second>
std::pair<std::optional<Error>, std::optional<Error>> errors_of(First first, Second second) {
    auto other = std::async(std::launch::async, [&] { return error_of(second); });
    auto own = error_of(first);
    return {own, other.get()};
}

std::vector<std::byte> bytes_of(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

void expect_messages_both_ways(Pair pair) {
    pair.connected.send(bytes_of("there"));
    pair.accepted.send(bytes_of("back"));
    EXPECT_EQ(pair.accepted.receive(), bytes_of("there"));
    EXPECT_EQ(pair.connected.receive(), bytes_of("back"));
}

bool machine_has_ipv6_loopback() {
    return !error_of([] { const Listener listener(0, "::1"); }).has_value();
}

TEST_F(Bootstrap, the_socket_is_readable_after_a_message_and_after_the_peer_closed) {
    std::optional<Pair> pair = make_pair();
    EXPECT_FALSE(is_readable(pair->accepted.native()));
    pair->connected.send(bytes_of("message"));
    EXPECT_TRUE(becomes_readable(pair->accepted.native()));
    EXPECT_EQ(pair->accepted.receive(), bytes_of("message"));
    EXPECT_FALSE(is_readable(pair->accepted.native()));

    Channel remaining = std::move(pair->accepted);
    EXPECT_EQ(pair->accepted.native(), -1) << "it was moved from";
    pair.reset();
    EXPECT_TRUE(becomes_readable(remaining.native()));
    EXPECT_TRUE(error_of([&] { (void)remaining.receive(); }).has_value());
}

TEST_F(Bootstrap, talks_over_ipv6) {
    if (!machine_has_ipv6_loopback()) {
        GTEST_SKIP() << "this machine has no ::1";
    }
    Listener listener(0, "::1");
    expect_messages_both_ways(make_pair(listener, "::1"));
}

TEST_F(Bootstrap, finds_a_host_by_name) {
    Listener listener(0, "localhost");
    expect_messages_both_ways(make_pair(listener, "localhost"));
}

TEST_F(Bootstrap, listens_at_every_address_when_given_none) {
    Listener listener(0);
    expect_messages_both_ways(make_pair(listener, "127.0.0.1"));
    if (machine_has_ipv6_loopback()) {
        expect_messages_both_ways(make_pair(listener, "::1"));
    }
}

TEST_F(Bootstrap, a_port_given_is_the_port_used_and_can_be_used_again) {
    std::uint16_t port = 0;
    {
        Listener listener(0, "127.0.0.1");
        port = listener.port();
        // The accepted end closes first, and with nothing unread: its port is in TIME_WAIT then.
        Pair pair = make_pair(listener, "127.0.0.1");
        Channel(std::move(pair.accepted)).send(bytes_of("bye"));
        EXPECT_EQ(pair.connected.receive(), bytes_of("bye"));
    }
    const Listener again(port, "127.0.0.1");
    EXPECT_EQ(again.port(), port);
}

TEST_F(Bootstrap, messages_of_every_permitted_size_arrive_whole_and_in_order) {
    Pair pair = make_pair();
    const std::vector<std::size_t> sizes = {0, 1, 1448, Channel::max_message - 1,
                                            Channel::max_message};
    std::vector<std::vector<std::byte>> sent;
    for (const std::size_t size : sizes) {
        std::vector<std::byte>& message = sent.emplace_back(size);
        rdmabuf::testing::fill(message, static_cast<unsigned>(size));
    }
    auto sender = std::async(std::launch::async, [&] {
        for (const auto& message : sent) {
            pair.connected.send(message);
        }
    });
    for (const auto& message : sent) {
        EXPECT_EQ(pair.accepted.receive(), message);
    }
    sender.get();
}

TEST_F(Bootstrap, refuses_to_send_a_message_that_is_too_long_and_goes_on) {
    Pair pair = make_pair();
    const std::vector<std::byte> message(Channel::max_message + 1);
    EXPECT_THAT(error_of([&] { pair.connected.send(message); }),
                fails_with(EMSGSIZE,
                           "send: Message too long (EMSGSIZE): a message has up to 65536 "
                           "bytes, not 65537"));
    expect_messages_both_ways(std::move(pair));
}

TEST_F(Bootstrap, exchanges_queue_pair_addresses_and_regions) {
    Pair pair = make_pair();
    QueuePairAddress one;
    one.number = 17;
    one.psn = 0x123456;
    one.lid = 3;
    one.mtu = IBV_MTU_4096;
    QueuePairAddress other;
    other.type = QueuePairType::unreliable_datagram;
    other.number = 0xffffff;
    other.qkey = 0x11111111;
    auto theirs = std::async(std::launch::async, [&] { return pair.accepted.exchange(other); });
    EXPECT_EQ(pair.connected.exchange(one), other);
    EXPECT_EQ(theirs.get(), one);

    const RemoteRegion here{.address = 0x7f0012345678, .length = 1U << 20U, .rkey = 0xdeadbeef};
    const RemoteRegion there{.address = 0, .length = 64, .rkey = 1};
    auto region = std::async(std::launch::async, [&] { return pair.accepted.exchange(there); });
    EXPECT_EQ(pair.connected.exchange(here), there);
    EXPECT_EQ(region.get(), here);
}

TEST_F(Bootstrap, both_sides_learn_of_differing_values_and_can_go_on) {
    Pair pair = make_pair();
    const auto [ours, theirs] = errors_of([&] { pair.connected.agree("size", "1M"); },
                                          [&] { pair.accepted.agree("size", "64K"); });
    EXPECT_THAT(ours, fails_with(EPROTO,
                                 "the two sides differ in \"size\": it is \"1M\" here and "
                                 "\"64K\" at the peer"));
    EXPECT_THAT(theirs, fails_with(EPROTO,
                                   "the two sides differ in \"size\": it is \"64K\" here "
                                   "and \"1M\" at the peer"));
    expect_messages_both_ways(std::move(pair));
}

TEST_F(Bootstrap, both_sides_learn_that_they_agree_on_different_things) {
    Pair pair = make_pair();
    const auto [ours, theirs] = errors_of([&] { pair.connected.agree("size", "1"); },
                                          [&] { pair.accepted.agree("verb", "1"); });
    EXPECT_THAT(ours, fails_with(EPROTO,
                                 "the peer wants to agree on \"verb\", this side on "
                                 "\"size\""));
    EXPECT_THAT(theirs, fails_with(EPROTO,
                                   "the peer wants to agree on \"size\", this side on "
                                   "\"verb\""));
}

TEST_F(Bootstrap, what_the_peer_wants_is_quoted_safely) {
    Pair pair = make_pair();
    const auto [ours, theirs] = errors_of([&] { pair.connected.agree("name", "plain"); },
                                          [&] { pair.accepted.agree("name", "\x1b[2J\n\""); });
    EXPECT_THAT(ours, fails_with(EPROTO, "\"\\x1b[2J\\n\\\"\" at the peer"));
    EXPECT_THAT(theirs, fails_with(EPROTO, "\"plain\" at the peer"));
}

TEST_F(Bootstrap, agreements_have_a_limit_and_up_to_it_never_block) {
    Pair pair = make_pair();
    const std::string name(Channel::max_agreement, 'n');
    EXPECT_THAT(error_of([&] { pair.connected.agree(name, "v"); }),
                fails_with(EMSGSIZE, "at most 1024 bytes together, not 1025"));
    const auto [ours, theirs] =
        errors_of([&] { pair.connected.agree(name, ""); }, [&] { pair.accepted.agree(name, ""); });
    EXPECT_FALSE(ours.has_value());
    EXPECT_FALSE(theirs.has_value());
}

TEST_F(Bootstrap, a_barrier_holds_until_both_have_come) {
    Pair pair = make_pair();
    for (int round = 0; round < 20; ++round) {
        std::atomic<bool> late_has_come = false;
        std::atomic<pid_t> thread = 0;
        auto early = std::async(std::launch::async, [&] {
            thread = ::gettid();
            pair.connected.barrier();
            return late_has_come.load();
        });
        EXPECT_TRUE(eventually([&] { return is_ready(early) || is_asleep(thread); }));
        late_has_come = true;
        pair.accepted.barrier();
        EXPECT_TRUE(early.get()) << "round " << round;
    }
}

TEST_F(Bootstrap, both_sides_learn_that_they_take_different_steps) {
    Pair pair = make_pair();
    const auto [ours, theirs] =
        errors_of([&] { pair.connected.barrier(); },
                  [&] { static_cast<void>(pair.accepted.exchange(RemoteRegion{})); });
    EXPECT_THAT(ours, fails_with(EPROTO,
                                 "the peer sent a remote region where a barrier was "
                                 "expected: both sides must take the same steps in the same "
                                 "order"));
    EXPECT_THAT(theirs,
                fails_with(EPROTO, "the peer sent a barrier where a remote region was expected"));
}

TEST_F(Bootstrap, connects_to_a_listener_that_starts_later) {
    std::optional<Listener> listener(std::in_place, 0, "127.0.0.1");
    const std::uint16_t port = listener->port();
    listener.reset();
    std::atomic<bool> was_refused = false;
    auto connecting = std::async(std::launch::async, [&] {
        EXPECT_TRUE(error_of([&] { (void)Channel::connect("127.0.0.1", port, 0ms); }));
        was_refused = true;
        return Channel::connect("127.0.0.1", port, long_enough);
    });
    ASSERT_TRUE(eventually([&] { return was_refused.load(); }));
    listener.emplace(port, "127.0.0.1");
    Channel accepted = listener->accept(long_enough);
    expect_messages_both_ways({connecting.get(), std::move(accepted)});
}

TEST_F(Bootstrap, connecting_where_nobody_listens_is_refused) {
    std::uint16_t port = 0;
    {
        const Listener listener(0, "127.0.0.1");
        port = listener.port();
    }
    EXPECT_THAT(error_of([&] { static_cast<void>(Channel::connect("127.0.0.1", port, 1ms)); }),
                fails_with(ECONNREFUSED,
                           "connect: Connection refused (ECONNREFUSED): no program "
                           "listens at 127.0.0.1:" +
                               std::to_string(port)));
}

TEST_F(Bootstrap, a_host_that_does_not_exist_is_named) {
    // RFC 6761 keeps .invalid from ever existing.
    EXPECT_THAT(error_of([] { static_cast<void>(Channel::connect("no-such.invalid", 1, 5s)); }),
                fails_with(EINVAL,
                           "getaddrinfo: Invalid argument (EINVAL): the host "
                           "\"no-such.invalid\" has no address: "));
    EXPECT_THAT(error_of([] { static_cast<void>(Channel::connect("", 1, 5s)); }),
                fails_with(EINVAL, "the host \"\" has no address"));
    EXPECT_THAT(error_of([] { const Listener listener(0, "no-such.invalid"); }),
                fails_with(EINVAL, "the host \"no-such.invalid\" has no address"));
}

TEST_F(Bootstrap, a_port_that_another_listens_at_is_named) {
    const Listener listener(0, "127.0.0.1");
    const std::string port = std::to_string(listener.port());
    EXPECT_THAT(error_of([&] { const Listener second(listener.port(), "127.0.0.1"); }),
                fails_with(EADDRINUSE, "another socket listens at 127.0.0.1:" + port));
    EXPECT_THAT(error_of([&] { const Listener second(listener.port()); }),
                fails_with(EADDRINUSE, ":" + port));
}

TEST_F(Bootstrap, listening_at_an_address_of_another_machine_is_refused) {
    // RFC 5737: 203.0.113.0/24 is for documentation.
    EXPECT_THAT(error_of([] { const Listener listener(0, "203.0.113.1"); }),
                fails_with(EADDRNOTAVAIL, "203.0.113.1:0 is not an address of this machine"));
}

TEST_F(Bootstrap, waiting_for_a_peer_that_does_not_come_ends_with_etimedout) {
    Listener listener(0, "127.0.0.1");
    EXPECT_TRUE(lasts_at_least(150ms, [&] {
        EXPECT_THAT(error_of([&] { static_cast<void>(listener.accept(150ms)); }),
                    fails_with(ETIMEDOUT,
                               "accept: Connection timed out (ETIMEDOUT): no peer connected "
                               "within 150 ms"));
    }));
}

TEST_F(Bootstrap, a_listener_that_was_moved_from_accepts_nothing_at_once) {
    Listener listener(0, "127.0.0.1");
    const Listener moved = std::move(listener);
    EXPECT_THAT(
        error_of([&] { static_cast<void>(listener.accept(1h)); }), // NOLINT(*-use-after-move)
        fails_with(EBADF, "the Listener was closed, released or moved from"));
}

TEST_F(Bootstrap, a_negative_timeout_waits) {
    Listener listener(0, "127.0.0.1");
    std::atomic<pid_t> thread = 0;
    auto accepted = std::async(std::launch::async, [&] {
        thread = ::gettid();
        return listener.accept(std::chrono::milliseconds(-1));
    });
    EXPECT_TRUE(eventually([&] { return is_ready(accepted) || is_asleep(thread); }));
    EXPECT_FALSE(is_ready(accepted));
    Channel channel = Channel::connect("127.0.0.1", listener.port(), std::chrono::milliseconds(-1));
    expect_messages_both_ways({std::move(channel), accepted.get()});
}

TEST_F(Bootstrap, a_channel_survives_its_listener_and_being_moved) {
    auto listener = std::make_unique<Listener>(0, "127.0.0.1");
    Pair pair = make_pair(*listener, "127.0.0.1");
    listener.reset();
    Channel moved = std::move(pair.connected);
    pair.connected = std::move(moved);
    EXPECT_THAT(error_of([&] { moved.barrier(); }), // NOLINT(bugprone-use-after-move)
                fails_with(ENOTCONN, "or it was moved from"));
    expect_messages_both_ways(std::move(pair));
}

// A child by fork(2) has the socket of the listener open, too.
TEST_F(Bootstrap, a_destroyed_listener_refuses_connections_while_a_forked_child_lives) {
    std::optional<Listener> listener(std::in_place, 0, "127.0.0.1");
    const std::uint16_t port = listener->port();
    // The child lives until the other end of its socket is closed.
    const auto fork_child = [&](bool destroys_its_copy) {
        const std::array<int, 2> ends = connected_sockets(0s);
        const pid_t child = ::fork();
        if (child == 0) {
            ::close(ends[1]);
            if (destroys_its_copy) {
                listener.reset();
            }
            char byte = 0;
            ::_exit(::read(ends[0], &byte, 1) == 0 ? 0 : 1);
        }
        ::close(ends[0]);
        return std::pair(child, UniqueFd(ends[1]));
    };
    const auto end = [](std::pair<pid_t, UniqueFd> child) {
        child.second.reset();
        expect_success(child.first);
    };
    end(fork_child(true));
    expect_messages_both_ways(make_pair(*listener, "127.0.0.1"));

    for (const bool replaced : {true, false}) {
        std::pair<pid_t, UniqueFd> child = fork_child(false);
        if (replaced) {
            *listener = Listener(0, "127.0.0.1");
        } else {
            listener.reset();
        }
        EXPECT_THAT(error_of([&] { (void)Channel::connect("127.0.0.1", port, 1ms); }),
                    fails_with("connect", ECONNREFUSED));
        end(std::move(child));
        if (replaced) {
            expect_messages_both_ways(make_pair(*listener, "127.0.0.1"));
        }
    }
}

TEST_F(Bootstrap, its_descriptors_are_not_inherited_by_other_programs) {
    const std::set<int> before = open_descriptors();
    Listener listener(0);
    const Pair pair = make_pair(listener, "127.0.0.1");
    std::size_t checked = 0;
    for (const int fd : open_descriptors()) {
        if (!before.contains(fd)) {
            EXPECT_TRUE(closed_on_exec(fd)) << "descriptor " << fd;
            ++checked;
        }
    }
    EXPECT_EQ(checked, 3U);
}

} // namespace
} // namespace rdmabuf
