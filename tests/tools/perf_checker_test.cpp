// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf/checker.hpp"

namespace {

using namespace rdmabuf::tools::perf;
using testing::AllOf;
using testing::HasSubstr;

// Eight bytes of one sequence are in no other sequence, at no position: neither old data, nor that
// of the other end, nor shifted data passes for the expected data.
TEST(PerfPattern, SequencesOfDifferentSeedsShareNoWord) {
    std::set<std::vector<std::byte>> seen;
    std::size_t words = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        std::vector<std::byte> bytes(1024);
        fill_pattern(bytes, seed);
        for (auto at = bytes.begin(); at != bytes.end(); at += 8) {
            seen.emplace(at, at + 8);
            ++words;
        }
    }
    EXPECT_EQ(seen.size(), words);
}

TEST(PerfPattern, AShorterSequenceIsTheBeginningOfALongerOne) {
    std::vector<std::byte> whole(64);
    fill_pattern(whole, 7);
    for (std::size_t length = 0; length < 40; ++length) {
        std::vector<std::byte> part(length + 1, std::byte{0xee});
        fill_pattern(std::span(part).first(length), 7);
        EXPECT_EQ(std::memcmp(part.data(), whole.data(), length), 0) << length;
        EXPECT_EQ(part.back(), std::byte{0xee}) << "bytes behind the span";
    }
}

/// Memory and checker of one end.
struct End {
    End(const Layout& layout, Verb verb, Role role)
        : bytes(layout.buffer_size()),
          checker([this](auto /*mode*/, std::size_t offset, std::size_t length,
                         const auto& use) { use(std::span(bytes).subspan(offset, length)); },
                  layout, verb, role) {
        checker.initialise();
    }
    End(const End&) = delete;
    End& operator=(const End&) = delete;

    std::vector<std::byte> bytes;
    Checker checker;
};

/// Both ends of a run, between which memcpy() moves the data.
struct Pair {
    explicit Pair(Verb verb, std::uint64_t size = 1000, std::uint32_t depth = 2)
        : layout(size, depth, verb, 4096),
          initiator(layout, verb, Role::initiator),
          responder(layout, verb, Role::responder) {}

    [[nodiscard]] std::size_t outgoing(std::uint64_t transfer) const {
        return layout.region_offset() + layout.slot(transfer) + layout.outgoing();
    }
    [[nodiscard]] std::size_t incoming(std::uint64_t transfer) const {
        return layout.region_offset() + layout.slot(transfer) + layout.incoming();
    }
    void move(const End& from, End& to, std::uint64_t transfer) const {
        std::memcpy(to.bytes.data() + incoming(transfer), from.bytes.data() + outgoing(transfer),
                    layout.size());
    }
    /// A correct transfer and its answer.
    void exchange(std::uint64_t transfer) {
        initiator.checker.before_post(transfer);
        move(initiator, responder, transfer);
        responder.checker.before_post(transfer);
        move(responder, initiator, transfer);
    }

    Layout layout;
    End initiator;
    End responder;
};

std::string error_of(End& end, std::uint64_t transfer) {
    try {
        end.checker.arrived(transfer);
    } catch (const CheckError& error) {
        return error.what();
    }
    return "none";
}

std::string final_error_of(End& end, std::uint64_t transfers) {
    try {
        end.checker.finish(transfers);
    } catch (const CheckError& error) {
        return error.what();
    }
    return "none";
}

TEST(PerfChecker, CountsTheBytesThatArrivedAndAllOthers) {
    Pair pair(Verb::write);
    for (std::uint64_t transfer = 0; transfer < 5; ++transfer) {
        pair.exchange(transfer);
        EXPECT_EQ(error_of(pair.initiator, transfer), "none");
        EXPECT_EQ(error_of(pair.responder, transfer), "none");
    }
    EXPECT_EQ(pair.initiator.checker.checked().data, 5 * 1000U);
    EXPECT_EQ(pair.initiator.checker.checked().guard, 5 * (pair.layout.slot_size() - 2000));
    EXPECT_EQ(final_error_of(pair.initiator, 5), "none");
    EXPECT_EQ(final_error_of(pair.responder, 5), "none");
    EXPECT_EQ(pair.responder.checker.checked().data, 5 * 1000U);
}

TEST(PerfChecker, DataOfTheTransferBeforeIsWrong) {
    Pair pair(Verb::send, 1000, 1);
    pair.exchange(0);
    pair.initiator.checker.before_post(1);
    EXPECT_THAT(error_of(pair.responder, 1),
                AllOf(HasSubstr("at the responder after transfer 1"),
                      HasSubstr("byte 0 of 1000 of the incoming data"), HasSubstr("expected 0x")));
}

TEST(PerfChecker, DataOfAnotherSlotIsWrong) {
    Pair pair(Verb::send);
    pair.exchange(0);
    pair.exchange(1);
    std::memcpy(pair.responder.bytes.data() + pair.incoming(1),
                pair.initiator.bytes.data() + pair.outgoing(0), pair.layout.size());
    EXPECT_THAT(error_of(pair.responder, 1), HasSubstr("of the incoming data"));
}

TEST(PerfChecker, TheInitiatorsOwnDataComingBackIsWrong) {
    Pair pair(Verb::send);
    pair.exchange(0);
    pair.move(pair.initiator, pair.initiator, 0);
    EXPECT_THAT(error_of(pair.initiator, 0), HasSubstr("of the incoming data"));
}

TEST(PerfChecker, TheLastByteCounts) {
    Pair pair(Verb::write);
    pair.exchange(0);
    pair.responder.bytes[pair.incoming(0) + 999] ^= std::byte{0x80};
    EXPECT_THAT(error_of(pair.responder, 0), HasSubstr("byte 999 of 1000 of the incoming data"));
}

TEST(PerfChecker, EveryByteOfTheBufferIsCompared) {
    Pair pair(Verb::write, 8);
    for (std::uint64_t transfer = 0; transfer < 3; ++transfer) {
        pair.exchange(transfer);
    }
    EXPECT_EQ(final_error_of(pair.responder, 3), "none");
    for (std::size_t at = 0; at < pair.layout.buffer_size(); ++at) {
        pair.responder.bytes[at] ^= std::byte{1};
        EXPECT_TRUE(final_error_of(pair.responder, 3) != "none" ||
                    error_of(pair.responder, 2) != "none" || error_of(pair.responder, 1) != "none")
            << at;
        pair.responder.bytes[at] ^= std::byte{1};
    }
}

TEST(PerfChecker, AGuardBesideTheDataIsComparedAfterEachTransfer) {
    Pair pair(Verb::write);
    pair.exchange(0);
    for (const std::size_t at : {pair.incoming(0) - 1, pair.incoming(0) + 1000}) {
        pair.responder.bytes[at] ^= std::byte{1};
        EXPECT_THAT(error_of(pair.responder, 0), HasSubstr("of a guard is 0x"));
        pair.responder.bytes[at] ^= std::byte{1};
    }
    EXPECT_EQ(error_of(pair.responder, 0), "none");
}

TEST(PerfChecker, AReadBringsTheRespondersDataAndChangesNothingThere) {
    Pair pair(Verb::read);
    for (std::uint64_t transfer = 0; transfer < 5; ++transfer) {
        pair.initiator.checker.before_post(transfer);
        EXPECT_THAT(error_of(pair.initiator, transfer), HasSubstr("of the incoming data is 0x00"))
            << "the data of the read before was overwritten";
        pair.move(pair.responder, pair.initiator, transfer);
        EXPECT_EQ(error_of(pair.initiator, transfer), "none");
    }
    EXPECT_EQ(final_error_of(pair.initiator, 5), "none");
    EXPECT_EQ(final_error_of(pair.responder, 5), "none");
    EXPECT_EQ(pair.initiator.checker.checked().data, 5 * 1000U);
    EXPECT_EQ(pair.responder.checker.checked().data, 0U);
    pair.responder.bytes[pair.outgoing(1)] ^= std::byte{1};
    EXPECT_THAT(final_error_of(pair.responder, 5), HasSubstr("of the outgoing data"));
}

class PerfAtomics : public testing::TestWithParam<Verb> {};

TEST_P(PerfAtomics, TheOldValueComesBackAndTheNewOneStays) {
    const Verb verb = GetParam();
    Pair pair(verb, 8);
    const auto word = [](const End& end, std::size_t at) {
        std::uint64_t value = 0;
        std::memcpy(&value, end.bytes.data() + at, 8);
        return value;
    };
    for (std::uint64_t transfer = 0; transfer < 5; ++transfer) {
        EXPECT_EQ(word(pair.responder, pair.outgoing(transfer)), atomic_value(verb, transfer, 2));
        // The device returns the old value and stores the new one.
        pair.move(pair.responder, pair.initiator, transfer);
        EXPECT_EQ(error_of(pair.initiator, transfer), "none");
        const std::uint64_t next = atomic_value(verb, transfer + 2, 2);
        std::memcpy(pair.responder.bytes.data() + pair.outgoing(transfer), &next, 8);
        pair.move(pair.responder, pair.initiator, transfer);
        EXPECT_THAT(error_of(pair.initiator, transfer), HasSubstr("of the incoming data"));
        pair.move(pair.responder, pair.initiator, transfer);
    }
    EXPECT_EQ(final_error_of(pair.responder, 5), "none");
    EXPECT_THAT(final_error_of(pair.responder, 6), HasSubstr("of the outgoing data"));
    EXPECT_EQ(pair.initiator.checker.checked().data, 5 * 8U);
}

INSTANTIATE_TEST_SUITE_P(Verbs, PerfAtomics, testing::Values(Verb::compare_swap, Verb::fetch_add),
                         [](const auto& test) { return to_string(test.param); });

TEST(PerfAtomicValue, FetchAddAddsTheSameEachTime) {
    EXPECT_EQ(atomic_value(Verb::fetch_add, 5, 1) - atomic_value(Verb::fetch_add, 4, 1),
              atomic_addend);
    EXPECT_EQ(atomic_value(Verb::fetch_add, 20, 16) - atomic_value(Verb::fetch_add, 4, 16),
              atomic_addend);
}

} // namespace
