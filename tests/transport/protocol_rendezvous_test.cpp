// SPDX-License-Identifier: BSD-3-Clause
// A peer that sends wrong messages for a long message: for an unknown request, in a wrong state of
// the request, or with invalid regions.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "protocol_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using transport::detail::CtsRing;

/// Returns a region of @p length bytes that the RawConnector has not registered.
KeyedChunk chunk(std::uint64_t length, std::uint64_t address = 4096) {
    return {.address = address, .length = length, .rkeys = {1}};
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
        {"regions before and behind the last address", 1, 2, 16, {chunk(8, last), chunk(8, 0)}},
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

// Some time passes after a failure until the queue pairs of the channel are drained.
TEST_F(Protocol, a_long_message_of_a_failed_channel_matches_no_receive) {
    for (const bool probes : {false, true}) {
        SCOPED_TRACE(probes);
        connect_raw();
        raw_->send({.kind = Kind::rts, .value = tag},
                   RtsBody{.length = length, .request = 1, .chunks = 0, .rails = 1}, {});
        raw_->send({.kind = Kind::close});
        ASSERT_TRUE(eventually([&] { return channel_->state() == code(ECONNRESET); },
                               [&] { right_end().progress(); }));
        if (probes) {
            EXPECT_EQ(right_end().probe(tag, transport::full_mask), std::nullopt);
            EXPECT_EQ(right_end().mprobe(tag, transport::full_mask), std::nullopt);
        }
        Request request;
        ASSERT_EQ(right_end().irecv(memory_->memory(), memory_->data(), length, tag,
                                    transport::full_mask, request),
                  code(0));
        settle([&] { right_end().progress(); });
        EXPECT_FALSE(right_end().test(request).done);
        EXPECT_EQ(right_end().cancel(request), code(0));
        EXPECT_EQ(right_end().wait(request, time_limit).error, code(ECANCELED));
        channel_.reset();
    }
}

TEST_F(Protocol, does_not_use_regions_that_the_peer_has_not_registered) {
    ASSERT_NO_FATAL_FAILURE(connect_raw());
    raw_->send({.kind = Kind::rts, .value = tag},
               RtsBody{.length = length, .request = 1, .chunks = 1, .rails = 1}, {chunk(length)});
    Request request = receive();
    EXPECT_EQ(wait(*channel_, request).error, code(EACCES));
    EXPECT_EQ(channel_->state(), code(ECONNABORTED));
}

} // namespace
} // namespace rdmabuf::testing
