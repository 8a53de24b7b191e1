// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/ring.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "support.hpp"

namespace softverbs::fabric {
namespace {

using Next = RingConsumer::Next;
using Room = RingProducer::Room;

constexpr std::size_t ring_size = 256;
constexpr std::size_t longest = 96;

/// Both ends of a ring of 256 bytes, and its memory.
class RingTest : public ::testing::Test {
  protected:
    [[nodiscard]] bool put(std::string_view text) {
        if (producer.room(text.size()) != Room::enough) {
            return false;
        }
        const std::span<const std::byte> part = std::as_bytes(std::span(text));
        producer.put({&part, 1}, text.size());
        return true;
    }

    /// The next record's text, taken out.
    [[nodiscard]] std::string take() {
        std::span<const std::byte> record;
        const Next next = consumer.next(record);
        if (next != Next::record) {
            return next == Next::nothing ? "(nothing)" : "(garbage)";
        }
        std::string text = testing::text_of(record);
        consumer.pop();
        return text;
    }

    void write_header(std::size_t offset, std::uint64_t header) {
        std::memcpy(bytes.data() + offset, &header, sizeof header);
    }

    alignas(8) std::array<std::byte, ring_size> bytes{};
    std::atomic<std::uint64_t> tail{0};
    std::atomic<std::uint64_t> head{0};
    RingMemory memory{bytes.data(), ring_size, &tail, &head};
    RingProducer producer{memory};
    RingConsumer consumer{memory, longest};
};

TEST_F(RingTest, GivesRecordsOutInOrderAndThenNothing) {
    ASSERT_TRUE(put("one"));
    ASSERT_TRUE(put(""));
    ASSERT_TRUE(put("three, longer than eight bytes"));
    EXPECT_EQ(take(), "one");
    EXPECT_EQ(take(), "");
    EXPECT_EQ(take(), "three, longer than eight bytes");
    EXPECT_EQ(take(), "(nothing)");
}

TEST_F(RingTest, JoinsThePartsOfARecord) {
    const std::string_view first = "first,";
    const std::string_view second = "second";
    const std::array<std::span<const std::byte>, 3> parts{
        std::as_bytes(std::span(first)), {}, std::as_bytes(std::span(second))};
    ASSERT_EQ(length_of(parts), 12U);
    ASSERT_EQ(producer.room(12), Room::enough);
    producer.put(parts, 12);
    EXPECT_EQ(take(), "first,second");
}

TEST_F(RingTest, AlignsRecordsToEightBytes) {
    ASSERT_TRUE(put("123"));
    ASSERT_TRUE(put("456"));
    static_cast<void>(take());
    std::span<const std::byte> record;
    ASSERT_EQ(consumer.next(record), Next::record);
    EXPECT_EQ(record.data(), bytes.data() + 24);
}

TEST_F(RingTest, GivesARecordAgainUntilItIsTaken) {
    ASSERT_TRUE(put("again"));
    std::span<const std::byte> record;
    ASSERT_EQ(consumer.next(record), Next::record);
    ASSERT_EQ(consumer.next(record), Next::record);
    EXPECT_EQ(testing::text_of(record), "again");
    EXPECT_EQ(take(), "again");
}

TEST_F(RingTest, IsFullToTheLastByteAndHasRoomAgain) {
    // Four times 64 bytes with their headers.
    for (int record = 0; record < 4; ++record) {
        ASSERT_TRUE(put(std::string(56, static_cast<char>('a' + record))));
    }
    EXPECT_EQ(producer.room(0), Room::not_now);
    EXPECT_EQ(take(), std::string(56, 'a'));
    EXPECT_EQ(producer.room(57), Room::not_now);
    EXPECT_EQ(producer.room(56), Room::enough);
}

TEST_F(RingTest, PutsARecordAtTheStartThatDoesNotFitBeforeTheEnd) {
    ASSERT_TRUE(put(std::string(88, 'a')));
    ASSERT_TRUE(put(std::string(88, 'b')));
    EXPECT_EQ(take(), std::string(88, 'a'));
    EXPECT_EQ(take(), std::string(88, 'b'));
    // 64 bytes are left before the end.
    ASSERT_TRUE(put(std::string(80, 'c')));
    std::span<const std::byte> record;
    ASSERT_EQ(consumer.next(record), Next::record);
    EXPECT_EQ(record.data(), bytes.data() + 8);
    EXPECT_EQ(take(), std::string(80, 'c'));
    EXPECT_EQ(head.load(), 256U + 88U);
}

TEST_F(RingTest, CarriesAnyMixtureOfLengthsRoundAndRound) {
    std::mt19937 random(1); // NOLINT(cert-msc51-cpp): the same each time
    std::deque<std::string> expected;
    for (int step = 0; step < 20000; ++step) {
        const std::string text(random() % (longest + 1), static_cast<char>('a' + step % 26));
        if (put(text)) {
            expected.push_back(text);
        }
        if (random() % 2 == 0 && !expected.empty()) {
            ASSERT_EQ(take(), expected.front());
            expected.pop_front();
        }
    }
    for (; !expected.empty(); expected.pop_front()) {
        ASSERT_EQ(take(), expected.front());
    }
    EXPECT_EQ(take(), "(nothing)");
}

TEST_F(RingTest, AnEmptyRingHasRoomForTheLongestRecordWherever) {
    for (int step = 0; step < 32; ++step) {
        ASSERT_EQ(producer.room(longest), Room::enough) << step;
        ASSERT_TRUE(put(""));
        ASSERT_EQ(take(), "");
    }
}

TEST_F(RingTest, KnowsATailBeyondTheRingForGarbage) {
    tail = ring_size + 8;
    EXPECT_EQ(take(), "(garbage)");
}

TEST_F(RingTest, KnowsATailBehindTheHeadForGarbage) {
    ASSERT_TRUE(put("one"));
    EXPECT_EQ(take(), "one");
    tail = 8;
    EXPECT_EQ(take(), "(garbage)");
}

TEST_F(RingTest, KnowsACrookedTailForGarbage) {
    tail = 17;
    EXPECT_EQ(take(), "(garbage)");
}

TEST_F(RingTest, KnowsALengthBeyondTheTailForGarbage) {
    tail = 24;
    write_header(0, record_header(17, RecordKind::data));
    EXPECT_EQ(take(), "(garbage)");
    write_header(0, record_header(16, RecordKind::data));
    EXPECT_EQ(take().size(), 16U);
}

TEST_F(RingTest, KnowsALengthBeyondTheLongestForGarbage) {
    tail = ring_size;
    for (const std::uint64_t length : {std::uint64_t{97}, std::uint64_t{0xffffffffU}}) {
        write_header(0, record_header(length, RecordKind::data));
        EXPECT_EQ(take(), "(garbage)") << length;
    }
}

TEST_F(RingTest, KnowsARecordBeyondTheEndForGarbage) {
    ASSERT_TRUE(put(std::string(88, 'a')));
    ASSERT_TRUE(put(std::string(88, 'b')));
    static_cast<void>(take());
    static_cast<void>(take());
    write_header(192, record_header(64, RecordKind::data));
    tail = 192 + 72;
    EXPECT_EQ(take(), "(garbage)");
}

TEST_F(RingTest, KnowsAnUnknownKindForGarbage) {
    tail = ring_size;
    write_header(0, std::uint64_t{2} << 32U);
    EXPECT_EQ(take(), "(garbage)");
    write_header(0, ~std::uint64_t{0});
    EXPECT_EQ(take(), "(garbage)");
}

TEST_F(RingTest, KnowsASkipOfTheWholeRingForGarbage) {
    tail = ring_size;
    write_header(0, record_header(0, RecordKind::skip));
    EXPECT_EQ(take(), "(garbage)");
}

TEST_F(RingTest, KnowsASkipToNothingForGarbage) {
    ASSERT_TRUE(put(std::string(88, 'a')));
    static_cast<void>(take());
    write_header(96, record_header(152, RecordKind::skip));
    tail = ring_size;
    EXPECT_EQ(take(), "(garbage)");
}

TEST_F(RingTest, KnowsASkipAfterASkipForGarbage) {
    ASSERT_TRUE(put(std::string(88, 'a')));
    static_cast<void>(take());
    write_header(96, record_header(152, RecordKind::skip));
    write_header(0, record_header(0, RecordKind::skip));
    tail = ring_size + 96;
    EXPECT_EQ(take(), "(garbage)");
}

TEST_F(RingTest, KnowsAHeadBeyondTheTailForGarbage) {
    ASSERT_TRUE(put(std::string(88, 'a')));
    ASSERT_TRUE(put(std::string(88, 'b')));
    head = 200;
    EXPECT_EQ(producer.room(88), Room::garbage);
    head = 4;
    EXPECT_EQ(producer.room(88), Room::garbage);
    head = 96;
    EXPECT_EQ(producer.room(80), Room::enough);
    EXPECT_EQ(producer.room(88), Room::enough);
    ASSERT_TRUE(put(std::string(88, 'c')));
    head = 8;
    EXPECT_EQ(producer.room(88), Room::garbage) << "the head went back";
}

TEST_F(RingTest, TakesNothingThatComesAfterTheEnd) {
    ASSERT_TRUE(put("last"));
    consumer.freeze();
    ASSERT_TRUE(put("too late"));
    EXPECT_FALSE(consumer.empty());
    EXPECT_EQ(take(), "last");
    EXPECT_EQ(take(), "(nothing)");
    EXPECT_TRUE(consumer.empty());
}

} // namespace
} // namespace softverbs::fabric
