// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/ring.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "support.hpp"

namespace softverbs::fabric {
namespace {

using Next = RingConsumer::Next;
using Room = RingProducer::Room;

constexpr std::size_t ring_size = 256;
constexpr std::size_t longest = 96;

/// The producer and the consumer of a ring of 256 bytes.
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

    /// Consumes the next record and returns its bytes.
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
    std::atomic<std::uint64_t> head{0};
    RingMemory memory{bytes.data(), ring_size, &head};
    RingProducer producer{memory};
    RingConsumer consumer{memory, longest};
};

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
    // Four records of 64 bytes, including headers, fill the ring. But the last one must leave space
    // for the header after it.
    for (int record = 0; record < 3; ++record) {
        ASSERT_TRUE(put(std::string(56, static_cast<char>('a' + record))));
    }
    EXPECT_EQ(producer.room(49), Room::not_now);
    ASSERT_TRUE(put(std::string(48, 'd')));
    EXPECT_EQ(producer.room(0), Room::not_now);
    EXPECT_EQ(take(), std::string(56, 'a'));
    EXPECT_EQ(producer.room(57), Room::not_now) << "it would have to be at the start";
    EXPECT_EQ(producer.room(48), Room::enough);
}

TEST_F(RingTest, PutsARecordAtTheStartThatDoesNotFitBeforeTheEnd) {
    ASSERT_TRUE(put(std::string(88, 'a')));
    ASSERT_TRUE(put(std::string(88, 'b')));
    EXPECT_EQ(take(), std::string(88, 'a'));
    EXPECT_EQ(take(), std::string(88, 'b'));
    // 64 bytes remain before the end of the ring.
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

TEST_F(RingTest, ShowsNothingOfWhatTheMemoryHeldBefore) {
    bytes.fill(std::byte{0x01});
    write_header(0, 0);
    EXPECT_EQ(take(), "(nothing)");
    ASSERT_TRUE(put("one"));
    EXPECT_EQ(take(), "one");
    EXPECT_EQ(take(), "(nothing)");
    ASSERT_TRUE(put(std::string(88, 'a')));
    ASSERT_TRUE(put(std::string(88, 'b')));
    EXPECT_EQ(take(), std::string(88, 'a'));
    // The next record is written at the start of the ring, over old headers.
    ASSERT_TRUE(put(std::string(56, 'c')));
    EXPECT_EQ(take(), std::string(88, 'b'));
    EXPECT_EQ(take(), std::string(56, 'c'));
    EXPECT_EQ(take(), "(nothing)");
}

TEST_F(RingTest, ShowsNoRecordBeforeItIsCommitted) {
    ASSERT_EQ(producer.room(16), Room::enough);
    std::memset(producer.reserve(16), 'x', 16);
    EXPECT_EQ(take(), "(nothing)");
    EXPECT_TRUE(consumer.empty());
    producer.commit(16);
    EXPECT_FALSE(consumer.empty());
    EXPECT_EQ(take(), std::string(16, 'x'));
}

TEST_F(RingTest, KnowsALengthBeyondTheLongestForGarbage) {
    for (const std::uint64_t length : {std::uint64_t{97}, std::uint64_t{0xffffffffU}}) {
        write_header(0, record_header(length, RecordKind::data));
        EXPECT_EQ(take(), "(garbage)") << length;
    }
    write_header(0, record_header(longest, RecordKind::data));
    EXPECT_EQ(take().size(), longest);
}

TEST_F(RingTest, KnowsARecordBeyondTheEndForGarbage) {
    ASSERT_TRUE(put(std::string(88, 'a')));
    ASSERT_TRUE(put(std::string(88, 'b')));
    static_cast<void>(take());
    static_cast<void>(take());
    write_header(192, record_header(64, RecordKind::data));
    EXPECT_EQ(take(), "(garbage)");
    write_header(192, record_header(56, RecordKind::data));
    EXPECT_EQ(take().size(), 56U);
}

TEST_F(RingTest, KnowsAnUnknownKindForGarbage) {
    for (const std::uint64_t header :
         {std::uint64_t{1}, std::uint64_t{3} << 32U, std::uint64_t{1} << 63U, ~std::uint64_t{0}}) {
        write_header(0, header);
        EXPECT_EQ(take(), "(garbage)") << header;
    }
}

TEST_F(RingTest, KnowsAWrongSkipForGarbage) {
    const auto take_after = [this](std::uint64_t skip, std::uint64_t next) {
        write_header(96, skip);
        write_header(0, next);
        return take();
    };
    const std::uint64_t whole_ring =
        record_header(ring_size - record_header_bytes, RecordKind::skip);
    write_header(0, whole_ring);
    EXPECT_EQ(take(), "(garbage)");
    ASSERT_TRUE(put(std::string(88, 'a')));
    static_cast<void>(take());
    const std::uint64_t to_the_end = record_header(152, RecordKind::skip);
    const std::uint64_t record = record_header(8, RecordKind::data);
    EXPECT_EQ(take_after(record_header(144, RecordKind::skip), record), "(garbage)");
    EXPECT_EQ(take_after(to_the_end, 0), "(garbage)") << "nothing follows";
    EXPECT_EQ(take_after(to_the_end, whole_ring), "(garbage)") << "another skip follows";
    EXPECT_EQ(take_after(to_the_end, record).size(), 8U);
}

TEST_F(RingTest, FindsGarbageThatWasWrittenBeforeTheEnd) {
    ASSERT_TRUE(put("last"));
    write_header(16, record_header(97, RecordKind::data));
    consumer.freeze();
    EXPECT_EQ(take(), "last");
    EXPECT_FALSE(consumer.empty());
    EXPECT_EQ(take(), "(garbage)");
}

TEST(RingReturnTest, UsesTheFirstPartOnlyWhileTheConsumerKeepsUp) {
    constexpr std::size_t size = std::size_t{256} * 1024;
    constexpr std::size_t part = std::size_t{16} * 1024;
    std::vector<std::uint64_t> words(size / sizeof(std::uint64_t));
    std::atomic<std::uint64_t> head{0};
    const RingMemory memory{reinterpret_cast<std::byte*>(words.data()), size, &head};
    RingProducer producer(memory);
    RingConsumer consumer(memory, 16384);
    std::span<const std::byte> record;
    const auto put = [&](std::size_t length) {
        ASSERT_EQ(producer.room(length), Room::enough);
        std::memset(producer.reserve(length), 'x', length);
        producer.commit(length);
    };
    for (std::size_t round = 0; round < 3000; ++round) {
        put(round % 16384);
        ASSERT_EQ(consumer.next(record), Next::record);
        ASSERT_EQ(record.size(), round % 16384);
        consumer.pop();
    }
    EXPECT_EQ(std::count(words.begin() + part / 8, words.end(), 0U),
              static_cast<std::ptrdiff_t>((size - part) / 8));
    // If the consumer is slow, the producer uses the whole ring.
    for (int count = 0; count < 14; ++count) {
        put(16384);
    }
    EXPECT_NE(std::count(words.begin() + part / 8, words.end(), 0U),
              static_cast<std::ptrdiff_t>((size - part) / 8));
    for (int count = 0; count < 14; ++count) {
        ASSERT_EQ(consumer.next(record), Next::record);
        ASSERT_EQ(record.size(), 16384U);
        consumer.pop();
    }
    EXPECT_EQ(consumer.next(record), Next::nothing);
}

TEST_F(RingTest, KnowsAHeadBeyondTheTailForGarbage) {
    ASSERT_TRUE(put(std::string(88, 'a')));
    ASSERT_TRUE(put(std::string(88, 'b')));
    head = 200;
    EXPECT_EQ(producer.room(88), Room::garbage);
    head = 4;
    EXPECT_EQ(producer.room(88), Room::garbage);
    head = 104;
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
