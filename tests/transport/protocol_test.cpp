// SPDX-License-Identifier: BSD-3-Clause
// A peer that violates the protocol, because of a defect or on purpose. Each violation ends its
// channel with EPROTO. Other channels of the endpoint go on.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "protocol_fixture.hpp"

namespace rdmabuf::testing {
namespace {

TEST_F(Protocol, is_understood_from_a_peer_that_follows_it) {
    ASSERT_NO_FATAL_FAILURE(connect_raw());
    Request received = receive();
    const auto advertisement = raw_->receive();
    EXPECT_EQ(advertisement.header.kind, Kind::advertisement);
    EXPECT_EQ(advertisement.header.value, tag);
    EXPECT_EQ(advertisement.header.received, 0);
    EXPECT_EQ(advertisement.as<CtsBody>().length, length);
    raw_->send({.kind = Kind::fin,
                .rails = 1,
                .number = advertisement.as<CtsBody>().request,
                .value = 9000});
    make_progress();
    Completion completion = channel_->test(received);
    EXPECT_TRUE(completion.done);
    EXPECT_EQ(completion.bytes, 9000);

    const std::vector<std::byte> body(100, std::byte{7});
    raw_->send({.kind = Kind::eager, .value = tag}, std::span(body));
    Request request;
    make_progress();
    ASSERT_EQ(channel_->irecv(memory_->memory(), memory_->data(), 100, tag, request), code(0));
    EXPECT_EQ(channel_->test(request).bytes, 100);
    EXPECT_TRUE(memory_->bytes(0, 100) == body);

    raw_->send({.kind = Kind::notify}, std::span(body).first(8));
    make_progress();
    EXPECT_EQ(channel_->notification(), 0x0707070707070707);

    Request sent = send();
    send_cts(raw_->receive().as<RtsBody>().request, length);
    completion = wait(*channel_, sent);
    EXPECT_TRUE(completion.done);
    EXPECT_EQ(completion.bytes, length);
    EXPECT_EQ(channel_->state(), code(0)) << channel_->reason();

    raw_->send({.kind = Kind::close});
    make_progress();
    EXPECT_EQ(channel_->state(), code(ECONNRESET));
    EXPECT_THAT(channel_->reason(), ::testing::HasSubstr("closed"));
}

TEST_F(Protocol, messages_of_a_peer_that_has_ended_are_received_although_its_socket_is_read_first) {
    ASSERT_NO_FATAL_FAILURE(connect_raw());
    Request request;
    ASSERT_EQ(channel_->irecv(memory_->memory(), memory_->data(), 100, tag, request), code(0));
    raw_->send({.kind = Kind::eager, .value = tag}, pattern(100));
    raw_.reset();
    EXPECT_TRUE(eventually([&] { return is_readable(right_end().descriptor()); }));
    EXPECT_FALSE(right_end().arm());
    EXPECT_EQ(channel_->state(), code(ECONNRESET));
    EXPECT_EQ(channel_->test(request).bytes, 100);
    EXPECT_TRUE(memory_->bytes(0, 100) == pattern(100));
}

TEST_F(Protocol, rejects_a_hello_with_impossible_limits) {
    open();
    transport::Listener listener = listen();
    const auto result = [&](const auto& change) {
        RawConnector raw;
        change(raw.hello);
        channel_.reset();
        return raw.connect(listener, channel_);
    };
    EXPECT_EQ(result([](Hello& hello) { hello.magic = 0; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.rails = 0; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.rails = 9; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) {
                  hello.rails = 8;
                  hello.queue_pairs_per_device = 3;
              }),
              code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.queue_pairs_per_device = 0; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.queue_pairs_per_device = 5; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.error = 4096; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.unexpected_limit = 4095; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.notification_limit = 4095; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.depth = 0; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.max_message_size = 0; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.addresses[0] = {}; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.error = ENOMEM; }), code(ENOMEM));
    EXPECT_EQ(result([](Hello& hello) { hello.version = 2; }), code(EPROTONOSUPPORT));
    EXPECT_EQ(result([](Hello&) {}), code(0));
}

TEST_F(Protocol, ends_after_an_invalid_header) {
    expect_violation("0 bytes", [&] { raw_->send(std::span<const std::byte>()); });
    expect_violation("less than a header",
                     [&] { raw_->send(std::vector<std::byte>(sizeof(Header) - 1, std::byte{1})); });
    for (const unsigned kind : {0U, 13U, 255U}) {
        expect_violation("kind " + std::to_string(kind),
                         [&] { raw_->send({.kind = static_cast<Kind>(kind)}); });
    }
    for (const Kind kind : {Kind::eager, Kind::credit, Kind::notify, Kind::cancel}) {
        for (const std::uint16_t received :
             std::initializer_list<std::uint16_t>{1, 0x8000, 0xffff}) {
            expect_violation("more messages received than sent",
                             [&] { raw_->send({.kind = kind, .received = received}); });
        }
    }
    for (const std::uint32_t number : {1U, 0x80000000U, 0xffffffffU}) {
        expect_violation("more credits than were used",
                         [&] { raw_->send({.kind = Kind::eager, .number = number}); });
        expect_violation("more credits than were used",
                         [&] { raw_->send({.kind = Kind::credit, .number = number}); });
        expect_violation("more notification credits than were used",
                         [&] { raw_->send({.kind = Kind::credit, .value = number}); });
    }
    expect_violation("data on the socket", [&] { raw_->send_on_socket("x"); });
}

TEST_F(Protocol, violated_on_one_channel_leaves_the_other_channels_usable) {
    connect();
    TestMemory from = left_memory(1U << 16U);
    const TestMemory to = right_memory(1U << 16U);
    from.fill(pattern(1U << 16U));
    Request before;
    ASSERT_EQ(right().irecv(to.memory(), to.data(), 1U << 16U, 7, before), code(0));
    for (int i = 0; i < 3; ++i) {
        expect_violation("a message without a header",
                         [&] { raw_->send(std::span<const std::byte>()); });
        // A message that exceeds its receive buffer consumes the buffer.
        expect_violation("a message longer than the receive buffer",
                         [&] { send_eager(options_.eager_limit + 4096); });
        // The number of a receive of another channel.
        expect_violation("FIN for a receive of another channel", [&] {
            raw_->send(
                {.kind = Kind::fin, .rails = 1, .number = before.index & 0xfffffU, .value = 10});
        });
        pass(from, to, 50000);
        pass(from, to, 100);
    }
    Request send;
    ASSERT_EQ(left().isend(from.memory(), from.data(), 30000, 7, send), code(0));
    EXPECT_EQ(finish(right(), before).bytes, 30000);
    EXPECT_EQ(finish(left(), send).error, code(0));
    EXPECT_TRUE(to.bytes(0, 30000) == from.bytes(0, 30000));
}

} // namespace
} // namespace rdmabuf::testing
