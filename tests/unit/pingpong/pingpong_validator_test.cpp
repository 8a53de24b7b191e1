// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "validator.hpp"

namespace {

using namespace pingpong;
using testing::AllOf;
using testing::HasSubstr;

// Memory that nobody has registered.
class PlainMemory final : public Memory {
  public:
    explicit PlainMemory(const Layout& layout) : Memory({}), bytes(layout.total) {}
    [[nodiscard]] const rdmabuf::Region& region() const noexcept override { std::terminate(); }
    void access(rdmabuf::CpuAccessMode /*mode*/, const Use& use) override { use(bytes); }

    std::vector<std::byte> bytes;
};

// Both ends of a run, with memcpy for a network.
class PingpongValidator : public testing::Test {
  protected:
    struct End {
        End(const Layout& layout, Verb verb, Role role)
            : memory(layout), validator(memory, layout, verb, role) {
            validator.initialise();
        }
        PlainMemory memory;
        Validator validator;
    };
    struct Pair {
        explicit Pair(Verb verb, std::uint64_t size = 1000)
            : layout(make_layout(size, verb, 4096)),
              initiator(layout, verb, Role::initiator),
              responder(layout, verb, Role::responder) {}

        void fill(std::uint64_t transfer) {
            initiator.validator.fill(transfer);
            responder.validator.fill(transfer);
        }
        void move(const End& from, End& to) const {
            std::memcpy(to.memory.bytes.data() + incoming(), from.memory.bytes.data() + outgoing(),
                        layout.size);
        }
        // A transfer as it should be, there and back.
        void exchange(std::uint64_t transfer) {
            fill(transfer);
            move(initiator, responder);
            move(responder, initiator);
        }
        [[nodiscard]] std::size_t outgoing() const {
            return layout.region_offset + layout.outgoing;
        }
        [[nodiscard]] std::size_t incoming() const {
            return layout.region_offset + layout.incoming;
        }

        Layout layout;
        End initiator;
        End responder;
    };

    static std::string complaint(End& end, std::uint64_t transfer) {
        try {
            end.validator.check(transfer);
        } catch (const ValidationError& error) {
            return error.what();
        }
        return "none";
    }
};

TEST_F(PingpongValidator, CountsTheBytesThatWereTransferredAndAllOthers) {
    Pair pair(Verb::write);
    for (std::uint64_t transfer = 0; transfer < 3; ++transfer) {
        pair.exchange(transfer);
        pair.initiator.validator.check(transfer);
        pair.responder.validator.check(transfer);
    }
    EXPECT_EQ(pair.initiator.validator.validated().data, 3 * 1000U);
    EXPECT_EQ(pair.initiator.validator.validated().guard, 3 * (pair.layout.total - 1000));
    EXPECT_EQ(pair.responder.validator.validated().data, 3 * 1000U);
}

TEST_F(PingpongValidator, DataOfTheTransferBeforeIsWrong) {
    Pair pair(Verb::send);
    pair.exchange(0);
    pair.fill(1);
    EXPECT_THAT(complaint(pair.responder, 1),
                AllOf(HasSubstr("at the responder after transfer 1"),
                      HasSubstr("byte 0 of 1000 of the incoming data"), HasSubstr("expected 0x")));
}

TEST_F(PingpongValidator, TheInitiatorsOwnDataComingBackIsWrong) {
    Pair pair(Verb::send);
    pair.exchange(0);
    pair.move(pair.initiator, pair.initiator);
    EXPECT_THAT(complaint(pair.initiator, 0), HasSubstr("of the incoming data"));
}

TEST_F(PingpongValidator, TheLastByteCounts) {
    Pair pair(Verb::write);
    pair.exchange(0);
    pair.responder.memory.bytes[pair.incoming() + 999] ^= std::byte{0x80};
    EXPECT_THAT(complaint(pair.responder, 0), HasSubstr("byte 999 of 1000 of the incoming data"));
}

TEST_F(PingpongValidator, AnyOtherByteOfTheBufferIsAGuard) {
    Pair pair(Verb::write, 8);
    pair.exchange(0);
    for (std::size_t at = 0; at < pair.layout.total; ++at) {
        auto& byte = pair.responder.memory.bytes[at];
        byte ^= std::byte{1};
        EXPECT_NE(complaint(pair.responder, 0), "none") << at;
        byte ^= std::byte{1};
    }
    EXPECT_EQ(complaint(pair.responder, 0), "none");
}

TEST_F(PingpongValidator, AGuardIsNamedByWhatItGuards) {
    Pair pair(Verb::write);
    pair.exchange(0);
    pair.responder.memory.bytes[pair.incoming() - 1] ^= std::byte{1};
    EXPECT_THAT(complaint(pair.responder, 0), HasSubstr("guard byte 1 before the incoming data"));
    pair.responder.memory.bytes[pair.incoming() - 1] ^= std::byte{1};
    pair.responder.memory.bytes.front() ^= std::byte{1};
    EXPECT_THAT(
        complaint(pair.responder, 0),
        HasSubstr("guard byte " + std::to_string(pair.outgoing()) + " before the outgoing data"));
    pair.responder.memory.bytes.front() ^= std::byte{1};
    pair.responder.memory.bytes[pair.incoming() + 1000] ^= std::byte{1};
    EXPECT_THAT(complaint(pair.responder, 0), HasSubstr("guard byte 1 behind the incoming data"));
}

TEST_F(PingpongValidator, AReadBringsTheRespondersDataAndChangesNothingThere) {
    Pair pair(Verb::read);
    pair.fill(0);
    pair.move(pair.responder, pair.initiator);
    EXPECT_EQ(complaint(pair.initiator, 0), "none");
    EXPECT_EQ(complaint(pair.responder, 0), "none");
    EXPECT_EQ(pair.initiator.validator.validated().data, 1000U);
    EXPECT_EQ(pair.responder.validator.validated().data, 0U);
    pair.responder.memory.bytes[pair.outgoing()] ^= std::byte{1};
    EXPECT_THAT(complaint(pair.responder, 0), HasSubstr("of the outgoing data"));
}

class PingpongAtomics : public PingpongValidator, public testing::WithParamInterface<Verb> {};

TEST_P(PingpongAtomics, TheOldValueComesBackAndTheNewOneStays) {
    const Verb verb = GetParam();
    Pair pair(verb, 8);
    const auto word = [](End& end, std::size_t at) {
        std::uint64_t value = 0;
        std::memcpy(&value, end.memory.bytes.data() + at, 8);
        return value;
    };
    for (std::uint64_t transfer = 0; transfer < 3; ++transfer) {
        EXPECT_EQ(word(pair.responder, pair.outgoing()), atomic_value(verb, transfer));
        // What the NIC does.
        pair.move(pair.responder, pair.initiator);
        EXPECT_THAT(complaint(pair.responder, transfer), HasSubstr("the value left behind"));
        const std::uint64_t next = atomic_value(verb, transfer + 1);
        std::memcpy(pair.responder.memory.bytes.data() + pair.outgoing(), &next, 8);

        EXPECT_EQ(complaint(pair.initiator, transfer), "none");
        EXPECT_EQ(complaint(pair.responder, transfer), "none");
        pair.move(pair.responder, pair.initiator);
        EXPECT_THAT(complaint(pair.initiator, transfer), HasSubstr("the value fetched"));
        pair.move(pair.responder, pair.initiator);
    }
    EXPECT_EQ(pair.initiator.validator.validated().data, 3 * 8U);
}

INSTANTIATE_TEST_SUITE_P(Verbs, PingpongAtomics,
                         testing::Values(Verb::compare_swap, Verb::fetch_add),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(PingpongAtomicValue, FetchAddAddsTheSameEachTime) {
    EXPECT_EQ(atomic_value(Verb::fetch_add, 5) - atomic_value(Verb::fetch_add, 4), atomic_addend);
}

} // namespace
