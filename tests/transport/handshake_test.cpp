// SPDX-License-Identifier: BSD-3-Clause
// Handles, descriptors of memory, and failures while a channel is set up.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "raw_peer.hpp"
#include "stopped_clock.hpp"
#include "support.hpp"
#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using transport::Handle;
using transport::Listener;
using transport::detail::ConnectorProof;
using transport::detail::Hello;
using transport::detail::ListenerState;

class Handshakes : public TransportTest {
  protected:
    void SetUp() override { open(); }

    [[nodiscard]] static RawPeer raw_peer(const Listener& listener) {
        return RawPeer::connect(listener.handle().port());
    }
    [[nodiscard]] static ConnectorProof proof(const Listener& listener) {
        return {.secret = listener.handle().connector_secret()};
    }
    template <class Message>
    static void send(const RawPeer& peer, const Message& message) {
        peer.send(std::as_bytes(std::span(&message, 1)));
    }
    /// Queue pairs, completion queues and memory regions of this process.
    [[nodiscard]] static std::size_t live_objects() {
        return softverbs_live(SOFTVERBS_QP) + softverbs_live(SOFTVERBS_CQ) +
               softverbs_live(SOFTVERBS_MR);
    }
    /// Advances the handshakes of the listener, without a channel.
    static void listen_for_a_while(Listener& listener) {
        std::optional<Channel> channel;
        for (int i = 0; i < 20; ++i) {
            EXPECT_EQ(listener.try_accept(channel), code(EAGAIN))
                << listener.error_info().message();
        }
    }
    /// Advances the handshakes of the listener until @p peer has received @p size bytes.
    static void listen_until_received(Listener& listener, const RawPeer& peer, std::size_t size) {
        EXPECT_TRUE(eventually([&] { return peer.available() >= size; },
                               [&] { listen_for_a_while(listener); }));
    }
    /// Returns the error of accept().
    [[nodiscard]] std::error_code accept(Listener& listener) {
        const auto result = listener.accept(time_limit);
        return result.code();
    }
};

TEST_F(Handshakes, handles_are_decoded_from_their_bytes_and_from_no_others) {
    const Listener listener = listen();
    const auto good = listener.handle().bytes();
    std::array<std::byte, 128> carrier{};
    std::copy(good.begin(), good.end(), carrier.begin());
    EXPECT_EQ(Handle::decode(carrier).value(), listener.handle());
    EXPECT_EQ(Handle::decode(good.first(Handle::wire_size - 1)).error(), EMSGSIZE);
    EXPECT_EQ(Handle::decode({}).error(), EMSGSIZE);
    std::array<std::byte, Handle::wire_size> bytes{};
    const auto changed = [&](std::size_t at) {
        std::copy(good.begin(), good.end(), bytes.begin());
        bytes[at] ^= std::byte{1};
        return Handle::decode(bytes).error();
    };
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        EXPECT_EQ(changed(at), at == 4 || at == 5 ? EPROTONOSUPPORT : EPROTO) << at;
    }
    std::mt19937 random(1); // NOLINT(cert-msc51-cpp): the same numbers in each run
    for (int i = 0; i < 1000; ++i) {
        for (std::byte& byte : bytes) {
            byte = static_cast<std::byte>(random());
        }
        EXPECT_FALSE(Handle::decode(bytes));
    }
    EXPECT_EQ(left_end().start_connect(Handle()).code(), code(EINVAL));
}

TEST_F(Handshakes, the_descriptor_of_a_connector_says_when_it_can_continue) {
    Listener listener = listen();
    auto connector = left_end().start_connect(listener.handle());
    ASSERT_TRUE(connector) << connector.message();
    std::optional<Channel> connected;
    std::optional<Channel> accepted;
    short events = 0;
    ASSERT_TRUE(eventually([&] {
        if (!accepted) {
            const std::error_code error = listener.try_accept(accepted);
            EXPECT_TRUE(!error || error == code(EAGAIN)) << error.message();
        }
        const std::optional<int> descriptor = connector->descriptor(events);
        pollfd entry = {.fd = descriptor.value(), .events = events, .revents = 0};
        if (::poll(&entry, 1, 0) == 1) {
            const std::error_code error = connector->try_connect(connected);
            EXPECT_TRUE(!error || error == code(EAGAIN)) << error.message();
        }
        return connected && accepted;
    }));
    EXPECT_EQ(connector->descriptor(events), std::nullopt);
    EXPECT_EQ(connector->try_connect(connected), code(EBADF));
    EXPECT_EQ(connector->wait(0ms).code(), code(EBADF));
    EXPECT_THAT(connector->error_info().message(),
                ::testing::HasSubstr("already opened the channel"));
}

TEST_F(Handshakes, the_descriptor_of_a_listener_says_when_it_can_continue) {
    Listener listener = listen();
    const int descriptor = listener.descriptor().value();
    EXPECT_FALSE(is_readable(descriptor));
    const RawPeer silent = raw_peer(listener);
    silent.send("R");
    ASSERT_TRUE(becomes_readable(descriptor));
    listen_for_a_while(listener);
    EXPECT_FALSE(is_readable(descriptor)) << "a peer without a proof is no work";
    auto connector = left_end().start_connect(listener.handle());
    ASSERT_TRUE(connector) << connector.message();
    std::optional<Channel> connected;
    std::optional<Channel> accepted;
    ASSERT_TRUE(eventually([&] {
        if (!connected) {
            const std::error_code error = connector->try_connect(connected);
            EXPECT_TRUE(!error || error == code(EAGAIN)) << error.message();
        }
        if (!accepted && is_readable(descriptor)) {
            const std::error_code error = listener.try_accept(accepted);
            EXPECT_TRUE(!error || error == code(EAGAIN)) << error.message();
        }
        return connected && accepted;
    }));
    EXPECT_EQ(listener.descriptor(), descriptor);
    EXPECT_FALSE(is_readable(descriptor)) << "the socket of the channel is not that of a handshake";
    const RawPeer another = raw_peer(listener);
    another.send("R");
    EXPECT_TRUE(becomes_readable(descriptor));
}

TEST_F(Handshakes, of_several_peers_continue_when_the_descriptor_says_so) {
    Listener listener = listen();
    RawPeer ends = raw_peer(listener);
    send(ends, proof(listener));
    listen_until_received(listener, ends, sizeof(Hello));
    // In the same call, the first peer has ended and the others have proved themselves.
    const std::array peers{raw_peer(listener), raw_peer(listener)};
    for (const RawPeer& peer : peers) {
        send(peer, proof(listener));
    }
    ends.close();
    const auto all_answered = [&] {
        return std::ranges::all_of(
            peers, [](const RawPeer& peer) { return peer.available() >= sizeof(Hello); });
    };
    std::optional<Channel> channel;
    EXPECT_TRUE(eventually(all_answered, [&] {
        const std::optional<int> descriptor = listener.descriptor();
        if (!descriptor || is_readable(*descriptor)) {
            static_cast<void>(listener.try_accept(channel));
        }
    }));
}

TEST_F(Handshakes, use_shorter_inline_data_if_the_device_has_no_longer_ones) {
    left_end_.reset();
    right_end_.reset();
    ASSERT_EQ(softverbs_reset("bnxt", 1), 0);
    open();
    Listener listener = listen();
    forget_calls();
    auto connector = left_end().start_connect(listener.handle());
    ASSERT_TRUE(connector) << connector.message();
    ASSERT_EQ(meet(*connector, listener), code(0));
    std::vector<std::uint32_t> created;
    for (const ibv_qp_init_attr_ex& queue_pair : record().qps) {
        created.push_back(queue_pair.cap.max_inline_data);
    }
    EXPECT_THAT(created, ::testing::ElementsAre(96, 96));
    pass(left_memory(64), right_memory(64), 64);
}

TEST_F(Handshakes, bytes_that_are_no_descriptor_of_memory_are_rejected) {
    const TestMemory memory = right_memory(4096);
    const auto remote = memory.memory().remote();
    ASSERT_TRUE(remote.ok());
    std::vector<std::byte> bytes(remote->bytes().begin(), remote->bytes().end());
    EXPECT_EQ(bytes.size(), 52);
    const auto decoded = RemoteMemory::decode(bytes);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->address(), reinterpret_cast<std::uintptr_t>(memory.data()));
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_EQ(RemoteMemory::decode(std::span(bytes).first(size)).error(), EMSGSIZE) << size;
    }
    std::vector<std::byte> longer = bytes;
    longer.resize(1000, std::byte{0xff});
    EXPECT_TRUE(std::ranges::equal(RemoteMemory::decode(longer)->bytes(), bytes));
    EXPECT_EQ(std::memcmp(&*decoded, &*remote, sizeof *remote), 0);
    bytes[0] ^= std::byte{1};
    EXPECT_EQ(RemoteMemory::decode(bytes).error(), EPROTO);
    bytes[0] ^= std::byte{1};
    bytes[3] ^= std::byte{1};
    EXPECT_EQ(RemoteMemory::decode(bytes).error(), EPROTONOSUPPORT);
    bytes[3] ^= std::byte{1};
    for (const unsigned at : {8U, 40U}) { // length, the first region
        bytes[at] ^= std::byte{0x40};
        EXPECT_EQ(RemoteMemory::decode(bytes).error(), EPROTO) << at;
        bytes[at] ^= std::byte{0x40};
    }
    bytes[24] ^= std::byte{0x40}; // the number of regions
    EXPECT_EQ(RemoteMemory::decode(bytes).error(), EMSGSIZE);
    bytes.resize(1000);
    EXPECT_EQ(RemoteMemory::decode(bytes).error(), EPROTO);
    // two regions without a gap, of which the second begins at the address 0
    transport::detail::RemoteTable table{.chunks = 2, .rails = 1};
    table.regions[0] = {.address = std::uint64_t{0} - 4096, .length = 4096};
    table.regions[1] = {.address = 0, .length = 4096};
    const RemoteMemory wrapping(table, table.regions[0].address, 8192, Access::remote_write);
    EXPECT_EQ(RemoteMemory::decode(wrapping.bytes()).error(), EPROTO);
}

TEST_F(Handshakes, both_ends_report_another_version) {
    Listener listener = listen();
    const RawPeer peer = raw_peer(listener);
    ConnectorProof other = proof(listener);
    other.version = 9;
    send(peer, other);
    Hello theirs;
    listen_until_received(listener, peer, sizeof theirs);
    const auto received = peer.receive(sizeof theirs);
    ASSERT_EQ(received.size(), sizeof theirs);
    std::memcpy(&theirs, received.data(), received.size());
    EXPECT_EQ(theirs.version, Hello::current_version);
    send(peer, Hello{.version = 9});
    EXPECT_EQ(accept(listener), code(EPROTONOSUPPORT));
    EXPECT_THAT(listener.error_info().message(), ::testing::HasSubstr("version"));
}

TEST_F(Handshakes, a_peer_that_proves_nothing_receives_nothing_and_costs_no_queue_pair) {
    Listener listener = listen();
    const std::size_t before = live_objects();
    std::vector<RawPeer> peers;
    peers.reserve(4);
    for (int i = 0; i < 4; ++i) {
        peers.push_back(raw_peer(listener));
    }
    peers[1].send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ConnectorProof wrong = proof(listener);
    wrong.secret[15] ^= std::byte{1};
    send(peers[2], wrong);
    peers[3].send(std::as_bytes(std::span(&wrong, 1)).first(23));
    raw_peer(listener).close();
    listen_for_a_while(listener);
    EXPECT_EQ(live_objects(), before);
    for (RawPeer& peer : peers) {
        EXPECT_EQ(peer.available(), 0U);
    }
    ASSERT_NO_FATAL_FAILURE(connect_to(listener)); // The listener goes on.
    const TestMemory from = left_memory(100);
    pass(from, right_memory(100), 100);
}

TEST_F(Handshakes, connections_without_a_proof_do_not_hold_up_a_peer_with_the_handle) {
    // meet() does not wait until these connections are closed.
    options_.handshake = 1h;
    open();
    for (const std::string_view sent : {"", "R"}) {
        for (const bool before : {true, false}) {
            SCOPED_TRACE(std::string(sent) + (before ? " before" : " after"));
            Listener listener = listen();
            std::optional<transport::Connector> connector;
            const auto start = [&] {
                auto started = left_end().start_connect(listener.handle());
                ASSERT_TRUE(started.ok()) << started.message();
                connector.emplace(*std::move(started));
            };
            if (!before) {
                start(); // The connector sends its proof in meet().
                listen_for_a_while(listener);
            }
            std::vector<RawPeer> others;
            others.reserve(3 * ListenerState::max_unproven);
            for (std::size_t i = 0; i < 3 * ListenerState::max_unproven; ++i) {
                others.push_back(raw_peer(listener));
                others.back().send(sent);
            }
            const std::set<int> open_before = open_descriptors();
            listen_for_a_while(listener);
            EXPECT_LE(open_descriptors().size(), open_before.size() + ListenerState::max_unproven);
            if (before) {
                start();
            }
            ASSERT_EQ(meet(*connector, listener), code(0));
            const TestMemory from = left_memory(100);
            pass(from, right_memory(100), 100);
            left_.reset();
            right_.reset();
        }
    }
}

TEST_F(Handshakes, of_a_peer_with_the_handle_are_limited_in_number) {
    options_.handshake = 1h;
    open();
    Listener listener = listen();
    constexpr std::size_t limit = ListenerState::max_handshakes;
    const std::size_t before = softverbs_live(SOFTVERBS_QP);
    std::vector<RawPeer> peers;
    peers.reserve(limit + ListenerState::max_unproven);
    const auto connect_peer = [&] {
        peers.push_back(raw_peer(listener));
        send(peers.back(), proof(listener));
    };
    const auto queue_pairs = [&] { return softverbs_live(SOFTVERBS_QP) - before; };
    while (peers.size() < limit) {
        connect_peer();
        EXPECT_TRUE(eventually([&] { return queue_pairs() == peers.size(); },
                               [&] { listen_for_a_while(listener); }));
    }
    // The next ones wait until an earlier one has ended, and unknown peers do not replace them.
    connect_peer();
    for (std::size_t i = 0; i < 2 * ListenerState::max_unproven; ++i) {
        peers.push_back(raw_peer(listener));
        peers.back().send("R");
        listen_for_a_while(listener);
    }
    EXPECT_EQ(queue_pairs(), limit);
    EXPECT_EQ(peers[limit].available(), 0U);
    peers[0].close();
    EXPECT_EQ(accept(listener), code(ECONNRESET));
    listen_until_received(listener, peers[limit], sizeof(Hello));
}

TEST_F(Handshakes, keep_sockets_that_notice_the_end_of_the_other_machine) {
    connect();
    int found = 0;
    for (const int fd : open_descriptors()) {
        int keepalive = 0;
        socklen_t size = sizeof keepalive;
        sockaddr_storage peer{};
        socklen_t length = sizeof peer;
        if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 &&
            peer.ss_family == AF_INET &&
            ::getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &keepalive, &size) == 0) {
            EXPECT_EQ(keepalive, 1);
            ++found;
        }
    }
    EXPECT_EQ(found, 2);
}

TEST_F(Handshakes, a_connector_sends_no_hello_to_a_process_that_did_not_make_the_handle) {
    const Handle handle = listen().handle();
    const RawListener impostor;
    const Handle redirected(handle.address(), 0, impostor.port(), handle.connector_secret(),
                            handle.listener_secret());
    auto connector = left_end().start_connect(redirected);
    ASSERT_TRUE(connector.ok()) << connector.message();
    const RawPeer peer = impostor.accept();
    std::optional<Channel> channel;
    ASSERT_EQ(connector->try_connect(channel), code(EAGAIN));
    EXPECT_EQ(peer.receive(sizeof(ConnectorProof)).size(), sizeof(ConnectorProof));
    const std::size_t before = live_objects();
    send(peer, Hello{.rails = 1,
                     .secret = handle.connector_secret(),
                     .unexpected_limit = 4096,
                     .notification_limit = 4096,
                     .depth = 1,
                     .max_message_size = 1U << 30U});
    EXPECT_EQ(connector->wait(20'000ms).code(), code(EPROTO));
    EXPECT_THAT(connector->error_info().message(),
                ::testing::HasSubstr("did not make this handle"));
    EXPECT_EQ(live_objects(), before);
    EXPECT_EQ(peer.available(), 0U);
}

TEST_F(Handshakes, create_a_queue_pair_again_without_inline_data) {
    for (const unsigned call : {1U, 2U}) { // of the listener and of the connector
        SCOPED_TRACE(call);
        left_.reset();
        right_.reset();
        Listener listener = listen();
        ASSERT_EQ(softverbs_fail_call("ibv_create_qp", call, ENOMEM), 0);
        ASSERT_NO_FATAL_FAILURE(connect_to(listener));
        EXPECT_EQ(softverbs_pending_faults(), 0U);
        const TestMemory from = left_memory(100);
        pass(from, right_memory(100), 100);
    }
}

TEST_F(Handshakes, unlock_the_mutex_of_the_program_while_they_create_and_connect_queue_pairs) {
    disconnect();
    std::mutex mutex;
    options_.mutex = &mutex;
    // With inline data, an end that cannot create its queue pair would try again without it.
    options_.inline_data = 0;
    ASSERT_NO_FATAL_FAILURE(open());
    for (const int error : {EIO, 0}) {
        unsigned calls = 0;
        before_each_call([&](std::string_view verb) {
            if (verb == "ibv_create_qp" || verb == "ibv_modify_qp") {
                EXPECT_TRUE(is_free(mutex)) << verb;
                ++calls;
            }
        });
        if (error != 0) {
            fail_next("modify_qp", error);
        }
        const std::unique_lock lock(mutex);
        Listener listener = listen();
        auto connector = left_end().start_connect(listener.handle());
        ASSERT_TRUE(connector.ok()) << connector.message();
        EXPECT_EQ(meet(*connector, listener), code(error));
        EXPECT_FALSE(is_free(mutex)) << "the caller still has the lock";
        // One creation and three changes of state at each end.
        EXPECT_EQ(calls, error == 0 ? 8U : 2U);
    }
    forget_calls();
    disconnect();
}

// Two threads of the program accept. One of them calls try_accept() while a handshake of the other
// one has unlocked the mutex.
TEST_F(Handshakes, of_one_listener_are_advanced_by_several_threads) {
    disconnect();
    std::mutex mutex;
    options_.mutex = &mutex;
    ASSERT_NO_FATAL_FAILURE(open());
    Listener listener = listen();
    constexpr std::size_t count = 4;
    std::vector<Channel> accepted;
    const auto accept = [&] {
        std::optional<Channel> channel;
        const std::error_code error = listener.try_accept(channel);
        EXPECT_TRUE(!error || error == code(EAGAIN)) << listener.error_info().message();
        if (channel) {
            accepted.push_back(*std::move(channel));
        }
    };
    bool outer = false;
    unsigned inner_calls = 0;
    before_each_call([&](std::string_view verb) {
        if ((verb == "ibv_create_qp" || verb == "ibv_modify_qp") && std::exchange(outer, false)) {
            ++inner_calls;
            const std::unique_lock lock(mutex);
            accept();
        }
    });
    std::vector<transport::Connector> connectors;
    std::vector<std::optional<Channel>> connected(count);
    for (std::size_t i = 0; i < count; ++i) {
        auto connector = left_end().start_connect(listener.handle());
        ASSERT_TRUE(connector.ok()) << connector.message();
        connectors.push_back(*std::move(connector));
    }
    EXPECT_TRUE(eventually([&] {
        const std::unique_lock lock(mutex);
        for (std::size_t i = 0; i < count; ++i) {
            const std::error_code error =
                connected[i] ? code(0) : connectors[i].try_connect(connected[i]);
            EXPECT_TRUE(!error || error == code(EAGAIN)) << connectors[i].error_info().message();
        }
        outer = true;
        accept();
        outer = false;
        return accepted.size() == count && std::ranges::all_of(connected, [](const auto& channel) {
                   return channel.has_value();
               });
    }));
    EXPECT_GT(inner_calls, 1U);
    forget_calls();
}

TEST_F(Handshakes, of_a_device_that_fails_while_the_mutex_is_unlocked_give_a_failed_channel) {
    std::mutex mutex;
    options_.mutex = &mutex;
    const Context device = Context::open_first();
    auto own = Endpoint::open(device, resolver_, options_);
    ASSERT_TRUE(own.ok()) << own.message();
    Listener listener = listen();
    const std::unique_lock lock(mutex);
    auto connector = own->start_connect(listener.handle());
    ASSERT_TRUE(connector.ok()) << connector.message();
    bool connecting = false;
    unsigned changes = 0;
    before_each_call([&](std::string_view verb) {
        // The last of three changes of state.
        if (connecting && verb == "ibv_modify_qp" && ++changes == 3) {
            own->async_event(device, {.type = IBV_EVENT_DEVICE_FATAL});
            own->progress();
        }
    });
    EXPECT_TRUE(eventually([&] {
        connecting = true;
        const std::error_code error = left_ ? code(0) : connector->try_connect(left_);
        connecting = false;
        EXPECT_TRUE(!error || error == code(EAGAIN)) << connector->error_info().message();
        static_cast<void>(right_ ? code(0) : listener.try_accept(right_));
        return left_ && right_;
    }));
    EXPECT_EQ(changes, 3U);
    left_->progress();
    EXPECT_EQ(left_->state(), code(EIO));
    forget_calls();
    left_.reset();
}

TEST_F(Handshakes, connecting_and_accepting_end_with_etimedout) {
    const Listener listener = listen();
    const auto channel = left_end().connect(listener.handle(), 20ms);
    EXPECT_EQ(channel.code(), code(ETIMEDOUT));
    auto idle = listen();
    EXPECT_EQ(idle.accept(5ms).code(), code(ETIMEDOUT));
}

TEST_F(Handshakes, wait_for_a_listener_that_accepts_later_than_their_time_limit) {
    Listener listener = listen();
    {
        const StoppedClock clock;
        auto connector = left_end().start_connect(listener.handle());
        ASSERT_TRUE(connector.ok()) << connector.message();
        for (int i = 0; i < 2; ++i) {
            EXPECT_EQ(connector->try_connect(left_), code(EAGAIN));
            StoppedClock::advance(options_.handshake);
        }
        ASSERT_EQ(meet(*connector, listener), code(0));
    }
    const TestMemory from = left_memory(100);
    pass(from, right_memory(100), 100);
}

// A child by fork(2) has the sockets of the listener open, too.
TEST_F(Handshakes, end_with_their_listener_while_a_forked_child_lives) {
    std::optional<Listener> listener(listen());
    const Handle handle = listener->handle();
    const RawPeer unproven = raw_peer(*listener);
    unproven.send("G");
    const RawPeer proven = raw_peer(*listener);
    send(proven, proof(*listener));
    listen_until_received(*listener, proven, sizeof(Hello));
    EXPECT_EQ(proven.receive(sizeof(Hello)).size(), sizeof(Hello));
    // The child lives until the descriptor is closed.
    const auto fork_child = [&](bool destroys_its_copy) {
        std::array<int, 2> pipe{};
        EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
        const pid_t child = ::fork();
        if (child == 0) {
            ::close(pipe[1]);
            if (destroys_its_copy) {
                listener.reset();
            }
            char byte = 0;
            ::_exit(::read(pipe[0], &byte, 1) == 0 ? 0 : 1);
        }
        ::close(pipe[0]);
        return std::pair(child, UniqueFd(pipe[1]));
    };
    const auto end = [](std::pair<pid_t, UniqueFd> child) {
        child.second.reset();
        int status = -1;
        EXPECT_EQ(::waitpid(child.first, &status, 0), child.first);
        EXPECT_EQ(status, 0);
    };
    end(fork_child(true));
    auto connector = left_end().start_connect(handle);
    ASSERT_TRUE(connector.ok()) << connector.message();
    EXPECT_EQ(meet(*connector, *listener), code(0));

    auto child = fork_child(false);
    listener.reset();
    EXPECT_EQ(left_end().connect(handle, time_limit).code(), code(ECONNREFUSED));
    EXPECT_TRUE(proven.receive(1).empty());
    EXPECT_TRUE(unproven.receive(1).empty());
    end(std::move(child));
}

TEST_F(Handshakes, a_peer_that_stops_after_its_proof_ends_with_etimedout) {
    options_.handshake = 50ms;
    open();
    Listener listener = listen();
    const RawPeer peer = raw_peer(listener);
    send(peer, proof(listener));
    EXPECT_EQ(accept(listener), code(ETIMEDOUT));
    EXPECT_THAT(listener.error_info().message(),
                ::testing::HasSubstr("EndpointOptions::handshake"));
}

// The second call has the mutex while the first one waits.
TEST_F(Handshakes, sleep_without_the_mutex_of_the_program_while_they_wait_for_a_peer) {
    disconnect();
    std::mutex mutex;
    options_.mutex = &mutex;
    open();
    for (const bool accepts_first : {true, false}) {
        SCOPED_TRACE(accepts_first);
        Listener listener = listen();
        const auto call = [&](bool accepts) {
            const std::unique_lock lock(mutex);
            return accepts ? listener.accept(time_limit)
                           : left_end().connect(listener.handle(), time_limit);
        };
        std::atomic<pid_t> waiting = 0;
        std::optional<Result<Channel>> first;
        std::thread thread([&] {
            waiting = ::gettid();
            first.emplace(call(accepts_first));
        });
        EXPECT_TRUE(eventually([&] { return is_asleep(waiting); }));
        std::optional<Result<Channel>> second(call(!accepts_first));
        thread.join();
        EXPECT_TRUE(first->ok()) << first->message();
        EXPECT_TRUE(second->ok()) << second->message();
        const std::unique_lock lock(mutex);
        first.reset();
        second.reset();
    }
    disconnect();
}

TEST_F(Handshakes, an_interface_that_does_not_exist_fails_with_enodev) {
    const auto listener = right_end().listen("no-such-interface0");
    EXPECT_EQ(listener.code(), code(ENODEV));
    EXPECT_THAT(listener.message(), ::testing::HasSubstr("no-such-interface0"));
    EXPECT_TRUE(right_end().listen("lo").ok());
    EXPECT_TRUE(right_end().listen().ok());
    const auto elsewhere = right_end().listen("192.0.2.77");
    EXPECT_EQ(elsewhere.code(), code(EADDRNOTAVAIL));
    EXPECT_THAT(elsewhere.message(), ::testing::HasSubstr("bind: "));
    EXPECT_THAT(elsewhere.message(), ::testing::HasSubstr("EADDRNOTAVAIL"));
}

TEST_F(Handshakes, a_program_with_the_headers_of_another_version_opens_no_endpoint) {
    using transport::detail::EndpointState;
    using transport::detail::state_layout;
    const std::array<Context, 1> devices{Context::open_first()};
    EXPECT_TRUE(EndpointState::make(devices, Resolver(), {}, state_layout));
    const auto opened = EndpointState::make(devices, Resolver(), {}, state_layout + 1);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.code(), code(EINVAL));
    EXPECT_THAT(opened.message(), ::testing::HasSubstr("headers of another version of rdmabuf"));
}

TEST_F(Handshakes, invalid_options_fail_with_einval) {
    const Context context = Context::open_first();
    const auto result_of = [&](const auto& change) {
        EndpointOptions options;
        change(options);
        return Endpoint::open(context, resolver_, options).code();
    };
    EXPECT_EQ(result_of([](EndpointOptions&) {}), code(0));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.depth = 0; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.depth = 65536; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.eager_limit = 1048577; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.send_depth = 15; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.send_depth = 32769; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.receive_buffers = 15; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.receive_buffers = 65537; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.send_buffers = 3; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.unexpected_limit = 4095; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.notification_limit = 4095; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.inline_data = 513; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.heartbeat = 0ms; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.probation = -1ms; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.probation = 25h; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.timeout = -1ms; }), code(EINVAL));
    EXPECT_EQ(result_of([](EndpointOptions& o) { o.port = 7; }), code(EINVAL));
    EXPECT_EQ(Endpoint::open(std::span<const Context>(), resolver_).code(), code(EINVAL));
}

} // namespace
} // namespace rdmabuf::testing
