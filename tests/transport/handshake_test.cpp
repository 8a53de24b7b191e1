// SPDX-License-Identifier: BSD-3-Clause
// Handles, descriptors, and what may go wrong while a channel is made.
#include <cstring>
#include <random>

#include "raw_peer.hpp"
#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using transport::Handle;
using transport::Listener;
using transport::detail::Hello;

class Handshakes : public TransportTest {
  protected:
    void SetUp() override { open(); }

    [[nodiscard]] Listener listen() {
        auto listener = right_end().listen("127.0.0.1");
        EXPECT_TRUE(listener.ok()) << listener.message();
        return *std::move(listener);
    }
    [[nodiscard]] static RawPeer raw_peer(const Listener& listener) {
        return RawPeer::connect(listener.handle().port());
    }
    [[nodiscard]] static Hello hello(const Listener& listener) {
        return {.rails = 1,
                .token = listener.handle().token(),
                .eager_limit = 8192,
                .eager_slots = 64,
                .max_message_size = 1U << 30U};
    }
    static void say(const RawPeer& peer, const Hello& hello) {
        peer.say(std::as_bytes(std::span(&hello, 1)));
    }
    /// What comes of a listener, other than to ask again.
    [[nodiscard]] std::error_code accept(Listener& listener) {
        const auto result = listener.accept(1000ms);
        return result.code();
    }
};

TEST_F(Handshakes, handles_survive_as_bytes) {
    const Listener listener = listen();
    std::array<std::byte, 128> carrier{};
    const auto bytes = listener.handle().bytes();
    std::copy(bytes.begin(), bytes.end(), carrier.begin());
    const auto decoded = Handle::decode(carrier);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(*decoded, listener.handle());
}

TEST_F(Handshakes, bytes_that_are_no_handle_are_told_apart) {
    const Listener listener = listen();
    const auto good = listener.handle().bytes();
    EXPECT_EQ(Handle::decode(good.first(47)).error(), EMSGSIZE);
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
    std::mt19937 random(1); // NOLINT(cert-msc51-cpp): the same each time
    for (int i = 0; i < 1000; ++i) {
        for (std::byte& byte : bytes) {
            byte = static_cast<std::byte>(random());
        }
        EXPECT_FALSE(Handle::decode(bytes));
    }
    EXPECT_EQ(left_end().start_connect(Handle()).code(), code(EINVAL));
}

TEST_F(Handshakes, bytes_that_are_no_descriptor_of_memory_are_told_apart) {
    const TestMemory memory = right_memory(4096);
    const auto remote = memory.memory().remote();
    ASSERT_TRUE(remote.ok());
    std::vector<std::byte> bytes(remote->bytes().begin(), remote->bytes().end());
    EXPECT_TRUE(RemoteMemory::decode(bytes));
    EXPECT_EQ(RemoteMemory::decode(std::span(bytes).first(799)).error(), EMSGSIZE);
    bytes[0] ^= std::byte{1};
    EXPECT_EQ(RemoteMemory::decode(bytes).error(), EPROTO);
    bytes[0] ^= std::byte{1};
    bytes[4] ^= std::byte{1};
    EXPECT_EQ(RemoteMemory::decode(bytes).error(), EPROTONOSUPPORT);
    bytes[4] ^= std::byte{1};
    for (const unsigned at : {16U, 24U, 26U, 40U}) { // length, counts, the first region
        bytes[at] ^= std::byte{0x40};
        EXPECT_EQ(RemoteMemory::decode(bytes).error(), EPROTO) << at;
        bytes[at] ^= std::byte{0x40};
    }
}

TEST_F(Handshakes, a_peer_of_another_version_is_told_at_once) {
    Listener listener = listen();
    const RawPeer peer = raw_peer(listener);
    Hello other = hello(listener);
    other.version = 9;
    // All it has in common is how it begins.
    peer.say(std::as_bytes(std::span(&other, 1)).first(6));
    EXPECT_EQ(accept(listener), code(EPROTONOSUPPORT));
    EXPECT_THAT(listener.error_info().message(), ::testing::HasSubstr("version"));
}

TEST_F(Handshakes, strangers_are_dropped_and_the_listener_goes_on) {
    Listener listener = listen();
    const RawPeer talker = raw_peer(listener);
    talker.say("GET / HTTP/1.1\r\n\r\n");
    RawPeer quitter = raw_peer(listener);
    quitter.close();
    const RawPeer guesser = raw_peer(listener);
    Hello wrong = hello(listener);
    wrong.token ^= 1;
    say(guesser, wrong);
    const RawPeer silent = raw_peer(listener);

    auto connector = left_end().start_connect(listener.handle());
    ASSERT_TRUE(connector.ok()) << connector.message();
    ASSERT_EQ(meet(*connector, listener), code(0));
    const TestMemory from = left_memory(100);
    pass(from, right_memory(100), 100);
}

TEST_F(Handshakes, nobody_listening_is_a_refusal) {
    std::optional<Listener> listener = listen();
    const Handle handle = listener->handle();
    listener.reset();
    const auto channel = left_end().connect(handle, 2000ms);
    EXPECT_EQ(channel.code(), code(ECONNREFUSED));
}

TEST_F(Handshakes, a_peer_that_does_not_accept_is_given_up) {
    const Listener listener = listen();
    const auto channel = left_end().connect(listener.handle(), 20ms);
    EXPECT_EQ(channel.code(), code(ETIMEDOUT));
    auto idle = listen();
    EXPECT_EQ(idle.accept(5ms).code(), code(ETIMEDOUT));
}

TEST_F(Handshakes, a_listener_that_stays_silent_is_given_up) {
    options_.handshake = 50ms;
    open();
    const Listener listener = listen();
    const auto channel = left_end().connect(listener.handle(), wait_forever);
    EXPECT_EQ(channel.code(), code(ETIMEDOUT));
}

TEST_F(Handshakes, an_interface_that_there_is_not_is_refused) {
    const auto listener = right_end().listen("no-such-interface0");
    EXPECT_EQ(listener.code(), code(ENODEV));
    EXPECT_TRUE(right_end().listen("lo").ok());
    EXPECT_TRUE(right_end().listen().ok());
    EXPECT_EQ(right_end().listen("192.0.2.77").code(), code(EADDRNOTAVAIL));
}

TEST_F(Handshakes, options_that_cannot_be_are_refused) {
    const Context context = Context::open_first();
    const auto refused = [&](const auto& change) {
        EndpointOptions options;
        change(options);
        return Endpoint::open(context, resolver_, options).code();
    };
    EXPECT_EQ(refused([](EndpointOptions&) {}), code(0));
    EXPECT_EQ(refused([](EndpointOptions& o) { o.depth = 0; }), code(EINVAL));
    EXPECT_EQ(refused([](EndpointOptions& o) { o.depth = 65536; }), code(EINVAL));
    EXPECT_EQ(refused([](EndpointOptions& o) { o.eager_limit = 1048577; }), code(EINVAL));
    EXPECT_EQ(refused([](EndpointOptions& o) { o.eager_slots = 3; }), code(EINVAL));
    EXPECT_EQ(refused([](EndpointOptions& o) { o.inline_data = 513; }), code(EINVAL));
    EXPECT_EQ(refused([](EndpointOptions& o) { o.heartbeat = 0ms; }), code(EINVAL));
    EXPECT_EQ(refused([](EndpointOptions& o) { o.timeout = -1ms; }), code(EINVAL));
    EXPECT_EQ(refused([](EndpointOptions& o) { o.port = 7; }), code(EINVAL));
    EXPECT_EQ(Endpoint::open(std::span<const Context>(), resolver_).code(), code(EINVAL));
}

/// The n-th verbs call fails, for every n that there is: the channel works all the same, or both
/// ends end; nothing is left.
TEST_F(Handshakes, that_fail_at_any_call_of_verbs_fail_at_both_ends_and_leave_nothing) {
    unsigned refused = 0;
    bool happened = true;
    for (unsigned n = 1; happened; ++n) {
        ASSERT_LT(n, 1000U);
        SCOPED_TRACE(n);
        left_.reset();
        right_.reset();
        Listener listener = listen();
        fail_call(n, ENOMEM);
        auto connector = left_end().start_connect(listener.handle());
        const std::error_code error =
            connector.ok() ? meet(*connector, listener) : connector.code();
        happened = all_failed();
        softverbs_clear_faults();
        if (error) {
            ++refused;
            EXPECT_THAT(error.value(), ::testing::AnyOf(ENOMEM, ECONNRESET)) << error.message();
            continue;
        }
        const TestMemory from = left_memory(100);
        pass(from, right_memory(100), 100);
    }
    EXPECT_GT(refused, 20U);
}

} // namespace
} // namespace rdmabuf::testing
