// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/clock.hpp"
#include "raw_socket.hpp"
#include "support.hpp"

namespace softverbs::fabric::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Side = LinkMemory::Side;

class GarbageTest : public ::testing::Test {
  protected:
    GarbageTest() : descriptors_before(open_descriptors()) {}

    /// Checks that the node has closed the connection and is otherwise unchanged.
    void expect_refused(const RawSocket& socket) {
        peer.turn();
        peer.turn();
        EXPECT_TRUE(socket.closed());
        EXPECT_THAT(peer.seen.requests, IsEmpty());
        EXPECT_EQ(peer.seen.gone, 0U) << "nobody was there";
    }

    /// Checks that another node can still connect to this node.
    void expect_useful() {
        Peer other(directory.options());
        Connection* const there = other.node->connect(peer.node->slot());
        ASSERT_NE(there, nullptr);
        ASSERT_EQ(send(*there, Lane::requests, "a good one"), Sent::sent);
        EXPECT_TRUE(turn_until({&peer}, [&] { return !peer.seen.requests.empty(); }));
        EXPECT_THAT(peer.seen.requests, ElementsAre("a good one"));
    }

    NodeDirectory directory;
    Peer peer{directory.options()};
    std::size_t descriptors_before;
};

TEST_F(GarbageTest, AHelloWhoseDescriptorsDoNotFitIsRefusedWithALine) {
    const Impostor impostor(*peer.node, 7);
    peer.turn(); // accepts the connection
    impostor.greet();
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ::testing::internal::CaptureStderr();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    peer.turn();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("raise ulimit -n"));
    expect_refused(impostor.socket);
    expect_useful();
}

TEST_F(GarbageTest, AProperHelloIsWelcomeThoughLate) {
    const Impostor impostor(*peer.node, 7);
    peer.turn();
    EXPECT_FALSE(impostor.socket.closed());
    impostor.greet();
    peer.turn();
    EXPECT_FALSE(impostor.socket.closed());
    EXPECT_EQ(impostor.socket.hear().kind, MessageKind::welcome);
    EXPECT_EQ(impostor.memory.incoming(Side::acceptor).pull.load(),
              static_cast<unsigned>(PullMethod::none))
        << "no cookie is where the hello says";
}

TEST_F(GarbageTest, AHelloWithTheSlotOfAnotherProcessIsRefused) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const UniqueFd from_child(ends[0]);
    const UniqueFd to_parent(ends[1]);
    const Child child([&] {
        const auto node = std::make_unique<Node>(directory.options());
        const unsigned slot = node->slot();
        static_cast<void>(::write(to_parent.get(), &slot, sizeof slot));
        ::pause();
        return 0;
    });
    unsigned slot = 0;
    ASSERT_EQ(::read(from_child.get(), &slot, sizeof slot), static_cast<ssize_t>(sizeof slot));
    const Impostor impostor(*peer.node, slot);
    impostor.greet();
    expect_refused(impostor.socket);
    expect_useful();
}

TEST_F(GarbageTest, AHelloWithASlotThatNoProcessHasIsRefused) {
    Impostor impostor(*peer.node, 7);
    impostor.hello.number = peer.node->slot() == 3 || peer.node->slot() == 7 ? 4 : 3;
    impostor.greet();
    expect_refused(impostor.socket);
    expect_useful();
}

TEST_F(GarbageTest, ADoorbellThatIsFullAndBlocksDoesNotStopTheSender) {
    const Impostor impostor(*peer.node, 7);
    impostor.greet();
    peer.turn();
    ASSERT_EQ(impostor.socket.hear().kind, MessageKind::welcome);
    // The flags of an eventfd belong to the open file, so they also apply to the descriptor of the
    // node.
    ASSERT_EQ(::eventfd_write(impostor.doorbell.get(), ~std::uint64_t{0} - 1), 0);
    ASSERT_EQ(::fcntl(impostor.doorbell.get(), F_SETFL, 0), 0);
    impostor.memory.incoming(Side::connector).sleeping.store(1);
    Connection* const back = peer.node->connect(7);
    ASSERT_NE(back, nullptr);
    EXPECT_EQ(send(*back, Lane::requests, "wake up"), Sent::sent);
}

TEST_F(GarbageTest, AHelloOfAnotherSizeIsRefused) {
    const Impostor impostor(*peer.node, 7);
    for (const std::size_t size : {0U, 8U, 63U, 65U}) {
        const RawSocket socket(*peer.node);
        std::array<std::byte, sizeof(Message) + 1> bytes{};
        std::memcpy(bytes.data(), &impostor.hello, sizeof(Message));
        socket.say(std::span(bytes).first(size), impostor.descriptors());
        expect_refused(socket);
    }
    expect_useful();
}

TEST_F(GarbageTest, AHelloWithoutItsDescriptorsIsRefused) {
    const Impostor impostor(*peer.node, 7);
    const std::array<int, 3> all{impostor.file.get(), impostor.doorbell.get(), impostor.file.get()};
    for (const std::size_t count : {0U, 1U}) {
        const RawSocket socket(*peer.node);
        socket.say(impostor.hello, std::span(all).first(count));
        expect_refused(socket);
    }
    const RawSocket swapped(*peer.node);
    swapped.say(impostor.hello, std::span(all).last(2));
    expect_refused(swapped);
    expect_useful();
}

TEST_F(GarbageTest, DescriptorsThatNobodyExpectsAreClosed) {
    {
        const Impostor impostor(*peer.node, 7);
        impostor.greet();
        peer.turn();
        const std::size_t connected = open_descriptors();
        Message poke;
        poke.kind = MessageKind::poke;
        const std::vector<int> many(200, impostor.file.get());
        impostor.socket.say(poke, many);
        peer.turn();
        EXPECT_EQ(open_descriptors(), connected);
        const RawSocket socket(*peer.node);
        socket.say(std::array<std::byte, 3>{}, many);
        expect_refused(socket);
    }
    peer.turn();
    EXPECT_EQ(open_descriptors(), descriptors_before);
}

TEST_F(GarbageTest, AHelloWithAnImpossibleValueIsRefused) {
    const auto refuse = [this](const std::function<void(Message&)>& spoil) {
        Impostor impostor(*peer.node, 7);
        spoil(impostor.hello);
        impostor.greet();
        expect_refused(impostor.socket);
    };
    refuse([](Message& hello) { ++hello.version; });
    refuse([](Message& hello) { ++hello.magic; });
    refuse([](Message& hello) { hello.number = 64; });
    refuse([](Message& hello) { hello.kind = MessageKind::welcome; });
    refuse([](Message& hello) { hello.kind = MessageKind{7}; });
    refuse([](Message& hello) { hello.ring_bytes[0] = std::uint64_t{1} << 63U; });
    refuse([](Message& hello) { hello.ring_bytes[0] = std::uint64_t{1} << 40U; });
    refuse([](Message& hello) { hello.ring_bytes[0] = 32768; });
    refuse([](Message& hello) { hello.ring_bytes[1] = 8191; });
    refuse([](Message& hello) { hello.ring_bytes[1] = 0; });
    expect_useful();
}

TEST_F(GarbageTest, MemoryThatCouldRaiseSigbusIsRefused) {
    const Impostor impostor(*peer.node, 7);
    const off_t size = ::lseek(impostor.file.get(), 0, SEEK_END);
    constexpr int sealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    struct Case {
        off_t size;
        int seals;
        bool allocated;
        bool good;
    };
    for (const Case& each :
         {Case{size, F_SEAL_GROW | F_SEAL_SEAL, true, false}, Case{size, 0, true, false},
          Case{size - 4096, sealed, true, false}, Case{size + 4096, sealed, true, false},
          Case{size, sealed, false, true}, Case{size, sealed | F_SEAL_WRITE, true, false},
          Case{size, sealed, true, true}}) {
        const UniqueFd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        ASSERT_EQ(each.allocated ? ::fallocate(file.get(), 0, 0, each.size)
                                 : ::ftruncate(file.get(), each.size),
                  0);
        // With F_SEAL_SEAL, no further seals can be added.
        ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, each.seals), 0);
        const RawSocket socket(*peer.node);
        socket.say(impostor.hello, std::array{file.get(), impostor.doorbell.get()});
        peer.turn();
        EXPECT_EQ(socket.closed(), !each.good) << each.size << " " << each.seals;
    }
}

TEST_F(GarbageTest, ADoorbellThatIsNoneIsRefused) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    const UniqueFd read_end(ends[0]);
    const UniqueFd write_end(ends[1]);
    const UniqueFd blocking(::eventfd(0, EFD_CLOEXEC));
    for (const int doorbell : {write_end.get(), blocking.get()}) {
        const Impostor impostor(*peer.node, 7);
        impostor.socket.say(impostor.hello, std::array{impostor.file.get(), doorbell});
        expect_refused(impostor.socket);
    }
}

TEST_F(GarbageTest, AMessageOutOfPlaceCutsTheConnectionOff) {
    unsigned gone = 0;
    const auto cut = [&](const Message& message) {
        const Impostor impostor(*peer.node, 7);
        impostor.greet();
        peer.turn();
        ASSERT_FALSE(impostor.socket.closed());
        static_cast<void>(impostor.socket.hear());
        impostor.socket.say(message);
        peer.turn();
        EXPECT_EQ(peer.seen.gone, ++gone);
        EXPECT_TRUE(impostor.socket.closed());
    };
    Message message;
    message.kind = MessageKind::hello;
    message.ring_bytes = {4096, 4096};
    cut(message);
    message.kind = MessageKind::welcome;
    cut(message);
    message.kind = MessageKind::share;
    message.number = 1;
    message.length = 4096;
    cut(message);
    message.number = 0;
    cut(message);
    message.kind = MessageKind::shared;
    message.number = 1;
    message.error = 1U << 31U;
    cut(message);
    EXPECT_EQ(gone, 5U);
    expect_useful();
}

TEST_F(GarbageTest, AnAnswerToNoOfferIsNobodysBusiness) {
    const Impostor impostor(*peer.node, 7);
    impostor.greet();
    Message answer;
    answer.kind = MessageKind::shared;
    answer.number = 3;
    impostor.socket.say(answer);
    peer.turn();
    EXPECT_THAT(peer.seen.shared, IsEmpty());
    EXPECT_EQ(peer.seen.gone, 0U);
}

TEST_F(GarbageTest, WhoSaysNothingIsSentAwayWhenThereAreTooMany) {
    std::vector<RawSocket> silent;
    silent.reserve(80);
    for (int count = 0; count < 80; ++count) {
        silent.emplace_back(*peer.node);
    }
    peer.turn();
    peer.turn();
    EXPECT_TRUE(silent.front().closed());
    EXPECT_FALSE(silent.back().closed());
    EXPECT_EQ(open_descriptors(), descriptors_before + 80 + 64);
    silent.clear();
    peer.turn();
    peer.turn();
    peer.turn();
    EXPECT_EQ(open_descriptors(), descriptors_before);
}

TEST_F(GarbageTest, GarbageInARingCutsTheConnectionOff) {
    const Impostor impostor(*peer.node, 7);
    impostor.greet();
    peer.turn();
    EXPECT_EQ(impostor.socket.hear().kind, MessageKind::welcome);
    RingProducer good(impostor.memory.outgoing_ring(Side::connector, Lane::requests));
    const std::string_view text = "still good";
    const std::span<const std::byte> part = std::as_bytes(std::span(text));
    ASSERT_EQ(good.room(text.size()), RingProducer::Room::enough);
    good.put({&part, 1}, text.size());
    // The next record has an invalid length.
    impostor.memory.outgoing_ring(Side::connector, Lane::requests)
        .header(record_bytes(text.size()))
        .store(record_header(std::uint64_t{1} << 31U, RecordKind::data));
    EXPECT_FALSE(peer.node->arm());
    peer.node->progress(peer.seen, 64);
    EXPECT_EQ(peer.seen.gone, 1U);
    EXPECT_TRUE(impostor.socket.closed());
    EXPECT_TRUE(peer.node->arm());
    EXPECT_EQ(open_descriptors(), descriptors_before + 4) << "the impostor's";
}

TEST_F(GarbageTest, AnImpossibleHeadCutsTheConnectionOff) {
    const Impostor impostor(*peer.node, 7);
    impostor.greet();
    peer.turn();
    Connection* const to = peer.node->connect(7);
    ASSERT_NE(to, nullptr);
    const std::string record(to->max_record(), 'x');
    while (send(*to, Lane::requests, record) == Sent::sent) {
    }
    impostor.memory.incoming(Side::connector).head[0] = std::uint64_t{1} << 40U;
    EXPECT_EQ(send(*to, Lane::requests, record), Sent::closed);
    EXPECT_EQ(send(*to, Lane::requests, record), Sent::closed);
    EXPECT_FALSE(peer.node->arm()) << "somebody has to be told";
    peer.node->progress(peer.seen, 64);
    EXPECT_EQ(peer.seen.gone, 1U);
}

TEST_F(GarbageTest, ATakenCountCannotExceedWhatWasSent) {
    const Impostor impostor(*peer.node, 7);
    impostor.greet();
    peer.turn();
    Connection* const to = peer.node->connect(7);
    ASSERT_NE(to, nullptr);
    impostor.memory.incoming(Side::connector).taken = 99;
    EXPECT_EQ(to->taken(), 0U);
    impostor.memory.incoming(Side::connector).pull = 77;
    EXPECT_EQ(to->pull_method(), PullMethod::none);
}

TEST_F(GarbageTest, ADirectWriteIsInProgressUntilItEndsOrItsProcessDoes) {
    for (const bool ends : {true, false}) {
        auto impostor = std::make_unique<Impostor>(*peer.node, 7);
        impostor->greet();
        peer.turn();
        Connection* const from = peer.node->connect(7);
        ASSERT_NE(from, nullptr);
        std::array<std::byte, 64> memory{};
        ASSERT_TRUE(from->grant({.writer = 1,
                                 .key = 2,
                                 .first = 0,
                                 .length = memory.size(),
                                 .address = reinterpret_cast<std::uintptr_t>(memory.data())}));
        impostor->memory.outgoing(Side::connector).writing = 1;
        ASSERT_TRUE(stop_clock());
        from->withdraw_grants();
        EXPECT_TRUE(from->write_in_progress());
        move_clock(now_ns() + 3600 * second_ns);
        ::testing::internal::CaptureStderr();
        EXPECT_TRUE(from->write_in_progress());
        EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("continues or ends"));
        ASSERT_TRUE(run_clock());
        if (ends) {
            impostor->memory.outgoing(Side::connector).writing = 2;
        } else {
            impostor.reset();
        }
        EXPECT_FALSE(from->write_in_progress());
        impostor.reset();
        peer.turn();
    }
}

TEST_F(GarbageTest, WhoGoesOnWritingAfterTheEndIsNotHeard) {
    auto impostor = std::make_unique<Impostor>(*peer.node, 7);
    impostor->greet();
    peer.turn();
    LinkMemory memory = std::move(impostor->memory);
    RingProducer ring(memory.outgoing_ring(Side::connector, Lane::requests));
    const auto put = [&ring](std::string_view text) {
        const std::span<const std::byte> part = std::as_bytes(std::span(text));
        ASSERT_EQ(ring.room(text.size()), RingProducer::Room::enough);
        ring.put({&part, 1}, text.size());
    };
    put("before the end");
    impostor.reset();
    peer.node->service(peer.seen);
    put("after it");
    peer.node->progress(peer.seen, 64);
    EXPECT_THAT(peer.seen.requests, ElementsAre("before the end"));
    EXPECT_EQ(peer.seen.gone, 1U);
}

} // namespace
} // namespace softverbs::fabric::testing
