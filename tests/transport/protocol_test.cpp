// SPDX-License-Identifier: BSD-3-Clause
// A peer that violates the protocol, because of a defect or on purpose. Each violation ends its
// channel with EPROTO. Other channels of the endpoint go on.
#include <array>
#include <string>

#include "raw_connector.hpp"
#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using transport::detail::CtsRing;
using transport::detail::MessageWindow;

class Protocol : public TransportTest {
  protected:
    using Kind = transport::detail::Kind;
    static constexpr std::uint32_t length = 20000;
    static constexpr Tag tag = 5;

    /// Creates a channel whose other end is a RawConnector.
    void connect_raw() {
        channel_.reset();
        raw_.reset();
        if (!right_end_) {
            open();
        }
        auto listener = right_end().listen("127.0.0.1");
        ASSERT_TRUE(listener.ok()) << listener.message();
        raw_.emplace();
        raw_->while_waiting = [this] { right_end().progress(); };
        ASSERT_EQ(raw_->connect(*listener, channel_), code(0));
        if (!memory_) {
            memory_.emplace(right_memory(1U << 16U));
        }
    }
    /// Makes progress until the messages of the RawConnector, which have arrived, are processed.
    void make_progress() {
        // SOFTVERBS_DISORDER delays acknowledgements and data by some milliseconds.
        const auto end = std::chrono::steady_clock::now() + 20ms;
        for (int i = 0; i < 1000 || std::chrono::steady_clock::now() < end; ++i) {
            channel_->progress();
        }
    }
    /// Expects that the channel fails with EPROTO when @p violate is called.
    template <class Violate>
    void expect_violation(const std::string& what, const Violate& violate) {
        SCOPED_TRACE(what);
        ASSERT_NO_FATAL_FAILURE(connect_raw());
        violate();
        const auto end = std::chrono::steady_clock::now() + 20s;
        while (!channel_->state() && std::chrono::steady_clock::now() < end) {
            channel_->progress();
        }
        EXPECT_EQ(channel_->state(), code(EPROTO))
            << channel_->state().message() << ": " << channel_->reason();
        EXPECT_EQ(channel_->close(), code(EPROTO));
    }

    /// Posts a send that needs an RTS.
    [[nodiscard]] Request send() {
        Request request;
        EXPECT_EQ(channel_->isend(memory_->memory(), memory_->data(), length, tag, request),
                  code(0));
        return request;
    }
    /// Posts a receive, which is advertised unless an RTS has arrived.
    [[nodiscard]] Request receive() {
        Request request;
        EXPECT_EQ(channel_->irecv(memory_->memory(), memory_->data(), length, tag, request),
                  code(0));
        make_progress();
        return request;
    }
    /// Posts a send. @return its number in the RTS
    [[nodiscard]] std::uint32_t sent() {
        static_cast<void>(send());
        const auto message = raw_->receive();
        EXPECT_EQ(message.header.kind, Kind::rts);
        return message.as<RtsBody>().request;
    }
    /// Posts a receive. @return its number in the advertisement
    [[nodiscard]] std::uint32_t advertised() {
        static_cast<void>(receive());
        const auto message = raw_->receive();
        EXPECT_EQ(message.header.kind, Kind::advertisement);
        return message.as<CtsBody>().request;
    }
    /// Sends an RTS without regions and posts a receive. @return the number of the receive in the
    /// CTS
    [[nodiscard]] std::uint32_t cleared() {
        raw_->send({.kind = Kind::rts, .value = tag}, RtsBody{.length = length, .request = 1}, {});
        make_progress();
        static_cast<void>(receive());
        const auto message = raw_->receive();
        EXPECT_EQ(message.header.kind, Kind::cts);
        EXPECT_EQ(message.header.number, 1);
        return message.as<CtsBody>().request;
    }
    void send_cts(std::uint32_t number, std::uint64_t bytes) {
        raw_->send({.kind = Kind::cts, .number = number},
                   CtsBody{.length = bytes, .request = 7, .chunks = 1, .rails = 1},
                   {raw_->chunk(bytes)});
    }
    void send_advertisement(std::uint32_t request) {
        raw_->send({.kind = Kind::advertisement, .value = tag},
                   CtsBody{.length = length, .request = request, .chunks = 1, .rails = 1},
                   {raw_->chunk(length)});
    }
    void send_eager(std::size_t bytes, Tag message_tag = tag) {
        raw_->send({.kind = Kind::eager, .value = message_tag}, std::vector<std::byte>(bytes));
    }

    std::optional<RawConnector> raw_;
    /// The listener's end of the channel to the RawConnector.
    std::optional<Channel> channel_;
    std::optional<TestMemory> memory_;
};

/// Returns a region of @p length bytes that the RawConnector has not registered.
KeyedChunk chunk(std::uint64_t length, std::uint64_t address = 4096) {
    return {.address = address, .length = length, .rkeys = {1}};
}

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

TEST_F(Protocol, begins_when_both_ends_have_connected) {
    open();
    auto listener = right_end().listen("127.0.0.1");
    ASSERT_TRUE(listener.ok()) << listener.message();
    RawConnector raw;
    EXPECT_EQ(raw.connect(*listener, channel_, EHOSTUNREACH), code(EHOSTUNREACH));
    EXPECT_FALSE(channel_);
}

TEST_F(Protocol, rejects_a_hello_with_impossible_limits) {
    open();
    auto listener = right_end().listen("127.0.0.1");
    ASSERT_TRUE(listener.ok()) << listener.message();
    const auto result = [&](const auto& change) {
        RawConnector raw;
        change(raw.hello);
        channel_.reset();
        return raw.connect(*listener, channel_);
    };
    EXPECT_EQ(result([](Hello& hello) { hello.magic = 0; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.rails = 0; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.rails = 5; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.error = 4096; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.unexpected_limit = 4095; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.notification_limit = 4095; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.max_message_size = 0; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.addresses[0] = {}; }), code(EPROTO));
    EXPECT_EQ(result([](Hello& hello) { hello.error = ENOMEM; }), code(ENOMEM));
    EXPECT_EQ(result([](Hello& hello) { hello.version = 2; }), code(EPROTONOSUPPORT));
    EXPECT_EQ(result([](Hello&) {}), code(0));
}

TEST_F(Protocol, sends_eager_messages_only_for_credits_and_at_most_a_window_of_messages) {
    ASSERT_NO_FATAL_FAILURE(connect_raw());
    std::vector<Request> requests(MessageWindow::size + 12);
    for (Request& request : requests) {
        ASSERT_EQ(channel_->isend(Memory(), nullptr, 0, tag, request), code(0));
    }
    make_progress();
    for (std::uint32_t i = 0; i < MessageWindow::size; ++i) {
        ASSERT_EQ(raw_->receive().header.kind, i < RawConnector::credits ? Kind::eager : Kind::rts)
            << i;
    }
    EXPECT_FALSE(raw_->has_message());
    EXPECT_TRUE(channel_->test(requests[RawConnector::credits - 1]).done);
    EXPECT_FALSE(channel_->test(requests[RawConnector::credits]).done);

    raw_->send({.kind = Kind::credit, .received = 3});
    make_progress();
    for (std::uint32_t i = 0; i < 3; ++i) {
        ASSERT_EQ(raw_->receive().header.kind, Kind::rts);
    }
    EXPECT_FALSE(raw_->has_message());
    raw_->send({.kind = Kind::credit, .received = 7, .number = 2 * 64});
    make_progress();
    for (std::uint32_t i = 0; i < 4; ++i) {
        ASSERT_EQ(raw_->receive().header.kind, i < 2 ? Kind::eager : Kind::rts);
    }
    EXPECT_FALSE(raw_->has_message());
}

TEST_F(Protocol, returns_credits_in_a_message_of_their_own_after_a_quarter_is_used) {
    ASSERT_NO_FATAL_FAILURE(connect_raw());
    for (std::uint32_t i = 1; i <= MessageWindow::size; ++i) {
        Request request;
        ASSERT_EQ(channel_->irecv(Memory(), nullptr, 0, tag, request), code(0));
        send_eager(0);
        make_progress();
        ASSERT_TRUE(channel_->test(request).done);
        if (i % (MessageWindow::size / 4) == 0) {
            const Header header = raw_->receive().header;
            EXPECT_EQ(header.kind, Kind::credit);
            EXPECT_EQ(header.received, i);
            EXPECT_EQ(header.number, i * 64);
        }
        ASSERT_FALSE(raw_->has_message()) << i;
    }
}

TEST_F(Protocol, returns_the_credits_of_consumed_notifications) {
    options_.notification_limit = 4096;
    ASSERT_NO_FATAL_FAILURE(connect_raw());
    for (std::uint32_t i = 1; i <= 2; ++i) {
        for (int n = 0; n < 8; ++n) {
            raw_->send({.kind = Kind::notify}, std::vector<std::byte>(64));
        }
        make_progress();
        EXPECT_FALSE(raw_->has_message());
        std::array<std::byte, 64> bytes{};
        for (int n = 0; n < 8; ++n) {
            EXPECT_TRUE(channel_->notification(bytes).ok());
        }
        make_progress();
        const Header header = raw_->receive().header;
        EXPECT_EQ(header.kind, Kind::credit);
        EXPECT_EQ(header.value, i * 1024);
        EXPECT_FALSE(raw_->has_message());
    }
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

TEST_F(Protocol, ends_after_a_message_that_is_longer_than_allowed_or_without_credits) {
    expect_violation("longer than the eager limit", [&] { send_eager(options_.eager_limit + 1); });
    expect_violation("longer than the receive buffer",
                     [&] { send_eager(options_.eager_limit + 4096); });
    expect_violation("a notification longer than its limit", [&] {
        raw_->send({.kind = Kind::notify}, std::vector<std::byte>(transport::max_notification + 1));
    });
    right_end_.reset();
    memory_.reset();
    options_.unexpected_limit = options_.notification_limit = 4096;
    expect_violation("eager messages without credits", [&] {
        for (std::uint32_t i = 0; i <= 4096 / 64; ++i) {
            EXPECT_EQ(channel_->state(), code(0));
            send_eager(0);
            make_progress();
        }
    });
    expect_violation("one eager message without credits", [&] { send_eager(4096); });
    expect_violation("notifications without credits", [&] {
        for (std::uint32_t i = 0; i <= 4096 / 64; ++i) {
            EXPECT_EQ(channel_->state(), code(0));
            raw_->send({.kind = Kind::notify});
            make_progress();
        }
    });
}

TEST_F(Protocol, ends_after_a_message_for_an_unknown_request) {
    for (const std::uint32_t number :
         {0U, 63U, 64U, 0x0fffffU, 0x100000U, 0x1fffffffU, 0xffffffffU}) {
        const std::string name = std::to_string(number);
        expect_violation("CTS " + name, [&] { send_cts(number, 1); });
        expect_violation("FIN " + name,
                         [&] { raw_->send({.kind = Kind::fin, .rails = 1, .number = number}); });
        expect_violation("NACK " + name,
                         [&] { raw_->send({.kind = Kind::nack, .number = number}); });
        expect_violation("end of read " + name,
                         [&] { raw_->send({.kind = Kind::rget_done, .number = number}); });
        expect_violation("cancelled " + name,
                         [&] { raw_->send({.kind = Kind::cancelled, .number = number}); });
        expect_violation("immediate " + name, [&] {
            raw_->write_immediate({.request = number & Immediate::max_request});
        });
    }
    expect_violation("FIN for a send",
                     [&] { raw_->send({.kind = Kind::fin, .rails = 1, .number = sent()}); });
    expect_violation("immediate for a send", [&] { raw_->write_immediate({.request = sent()}); });
    expect_violation("NACK for a receive",
                     [&] { raw_->send({.kind = Kind::nack, .number = advertised()}); });
    expect_violation("CTS for a receive", [&] { send_cts(advertised(), 1); });
    expect_violation("the generation of another request",
                     [&] { raw_->send({.kind = Kind::nack, .number = sent() + (1U << 20U)}); });
    expect_violation("a fence of the first device",
                     [&] { raw_->write_immediate({.fence = true}); });
}

TEST_F(Protocol, ends_after_a_message_that_its_request_does_not_expect) {
    expect_violation("FIN for a receive that was not advertised", [&] {
        // Only one receive exists: the numbers of its pool begin at 0.
        Request small;
        EXPECT_EQ(channel_->irecv(memory_->memory(), memory_->data(), 10, 6, small), code(0));
        raw_->send({.kind = Kind::fin, .rails = 1, .number = small.index & 0xfffffU});
    });
    expect_violation("FIN with more bytes than the receive buffer has", [&] {
        raw_->send({.kind = Kind::fin, .rails = 1, .number = advertised(), .value = length + 1});
    });
    expect_violation("FIN of 0 devices", [&] {
        raw_->send({.kind = Kind::fin, .rails = 0, .number = advertised(), .value = 10});
    });
    expect_violation("FIN of more devices than the channel has", [&] {
        raw_->send({.kind = Kind::fin, .rails = 2, .number = advertised(), .value = 10});
    });
    expect_violation("immediate of more devices than the channel has",
                     [&] { raw_->write_immediate({.rails = 2, .request = advertised()}); });
    expect_violation("FIN twice", [&] {
        const std::uint32_t number = advertised();
        raw_->send({.kind = Kind::fin, .rails = 1, .number = number, .value = 10});
        raw_->send({.kind = Kind::fin, .rails = 1, .number = number, .value = 10});
    });
    expect_violation("FIN after a CTS", [&] {
        raw_->send({.kind = Kind::fin, .rails = 1, .number = cleared(), .value = 10});
    });
    expect_violation("immediate twice", [&] {
        const std::uint32_t number = cleared();
        raw_->write_immediate({.request = number});
        raw_->write_immediate({.request = number});
    });
    expect_violation("CTS twice", [&] {
        const std::uint32_t number = sent();
        for (int i = 0; i < 2; ++i) {
            send_cts(number, length);
            make_progress();
            EXPECT_EQ(channel_->state(), code(i == 0 ? 0 : EPROTO));
        }
    });
    expect_violation("NACK twice", [&] {
        const std::uint32_t number = sent();
        raw_->send({.kind = Kind::nack, .number = number});
        raw_->send({.kind = Kind::nack, .number = number});
    });
    expect_violation("end of read twice", [&] {
        const std::uint32_t number = sent();
        raw_->send({.kind = Kind::rget_done, .number = number});
        raw_->send({.kind = Kind::rget_done, .number = number});
    });
    expect_violation("NACK after a CTS", [&] {
        const std::uint32_t number = sent();
        send_cts(number, length / 2);
        raw_->send({.kind = Kind::nack, .number = number});
    });
    expect_violation("cancelled without cancel",
                     [&] { raw_->send({.kind = Kind::cancelled, .number = advertised()}); });
    expect_violation("the same receive advertised twice", [&] {
        send_advertisement(3);
        send_advertisement(3);
    });
    expect_violation("more advertisements than the ring has entries", [&] {
        for (std::uint32_t i = 0; i <= CtsRing::capacity; ++i) {
            EXPECT_EQ(channel_->state(), code(0));
            send_advertisement(i);
            make_progress();
        }
    });
    expect_violation("CTS of more bytes than the message has",
                     [&] { send_cts(sent(), length + 1); });
}

TEST_F(Protocol, ends_after_an_invalid_table_of_regions) {
    constexpr std::uint32_t wrong_request = Immediate::max_request + 1;
    constexpr std::uint64_t last = 0xfffffffffffffff8;
    struct Table {
        const char* what;
        std::uint16_t rails;
        std::uint16_t chunks;
        std::uint64_t length;
        std::vector<KeyedChunk> behind;
        std::uint32_t request = 1;
        /// True if an RTS may have these values: it needs no regions.
        bool valid_rts = false;
    };
    const std::vector<Table> tables = {
        {"0 regions", 1, 0, 10, {}, 1, true},
        {"more regions than allowed", 1, 9, 9, std::vector<KeyedChunk>(9, chunk(1))},
        {"0 devices", 0, 1, 10, {chunk(10)}},
        {"missing regions", 1, 1, 10, {}},
        {"a partial region", 1, 2, 20, {chunk(10)}},
        {"more bytes than its regions", 1, 1, 10, {chunk(10), chunk(10, 4106)}},
        {"regions shorter than the length", 1, 1, 10, {chunk(9)}},
        {"regions longer than the length", 1, 2, 10, {chunk(9), chunk(2, 4105)}},
        {"a region of 0 bytes", 1, 1, 0, {chunk(0)}},
        {"regions that are not adjacent", 1, 2, 10, {chunk(5), chunk(5, 8192)}},
        {"lengths whose sum overflows", 1, 2, 10, {chunk(last), chunk(18, last + 4096)}},
        {"addresses that overflow", 1, 2, 20, {chunk(10, last), chunk(10, last + 10)}},
        {"an impossible request", 1, 1, 10, {chunk(10)}, wrong_request},
    };
    for (const Table& table : tables) {
        const CtsBody body = {.length = table.length,
                              .request = table.request,
                              .chunks = table.chunks,
                              .rails = table.rails};
        expect_violation(std::string("CTS with ") + table.what, [&] {
            raw_->send({.kind = Kind::cts, .number = sent()}, body, table.behind);
        });
        expect_violation(std::string("advertisement with ") + table.what, [&] {
            raw_->send({.kind = Kind::advertisement, .value = tag}, body, table.behind);
        });
        if (!table.valid_rts) {
            expect_violation(std::string("RTS with ") + table.what, [&] {
                raw_->send({.kind = Kind::rts, .value = tag}, body, table.behind);
            });
        }
    }
    for (const Kind kind : {Kind::rts, Kind::advertisement}) {
        expect_violation("a body that is too short",
                         [&] { raw_->send({.kind = kind}, std::vector<std::byte>(15)); });
    }
    expect_violation("a CTS body that is too short", [&] {
        raw_->send({.kind = Kind::cts, .number = sent()}, std::vector<std::byte>(15));
    });
    expect_violation("an RTS without regions, but with bytes behind it", [&] {
        raw_->send({.kind = Kind::rts, .value = tag}, RtsBody{.length = length}, {chunk(length)});
    });
}

// The test sends 65,537 messages.
TEST_F(Protocol, ends_after_more_rts_than_a_peer_can_have_requests) {
    expect_violation("RTS flood", [&] {
        std::vector<std::byte> rts;
        append(rts, Header{.kind = Kind::rts, .value = tag});
        append(rts, RtsBody{.length = length});
        for (std::uint32_t i = 0; i <= 65536 && !channel_->state(); i += RawConnector::batch) {
            raw_->send_batch(rts);
            for (int n = 0; n < 32; ++n) {
                channel_->progress();
            }
            while (raw_->has_message()) {
                static_cast<void>(raw_->receive()); // credits
            }
        }
    });
}

TEST_F(Protocol, does_not_use_regions_that_the_peer_has_not_registered) {
    ASSERT_NO_FATAL_FAILURE(connect_raw());
    raw_->send({.kind = Kind::rts, .value = tag},
               RtsBody{.length = length, .request = 1, .chunks = 1, .rails = 1}, {chunk(length)});
    Request request = receive();
    EXPECT_EQ(wait(*channel_, request).error, code(EACCES));
    EXPECT_EQ(channel_->state(), code(ECONNABORTED));
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
