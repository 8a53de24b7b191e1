// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <numeric>
#include <string>

#include "fixture.hpp"

namespace nccl_net_test {
namespace {

using rdmabuf::testing::fill;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNull;

class NcclNetMessages : public NcclNet {
  protected:
    NcclNetMessages() {
        EXPECT_EQ(load(), Result::success);
        pair_ = connect();
    }

    /// What is at @p offset of one is at @p there of the other.
    static void expect_same(const Memory& from, std::size_t offset, const Memory& to,
                            std::size_t there, std::size_t size) {
        EXPECT_TRUE(std::ranges::equal(from.bytes(offset, size), to.bytes(there, size)));
    }

    Pair pair_;
};

TEST_F(NcclNetMessages, ArriveWithTheSizeTheyHave) {
    for (const bool dmabuf : {false, true}) {
        constexpr std::size_t room = 3 << 20;
        const auto from = memory(pair_.send, room, dmabuf);
        const auto to = memory(pair_.receive, room, dmabuf);
        for (const std::size_t size : {1U, 7U, 128U, 4097U, 70001U, 2U << 20U}) {
            fill(from->bytes(0, room), static_cast<unsigned>(size));
            std::ranges::fill(to->bytes(0, room), std::byte{0});
            const Ticket received = receive(pair_.receive, *to, 64, room - 64, 5);
            const Ticket sent = send(pair_.send, *from, 3, size, 5);
            EXPECT_THAT(finish(received), ElementsAre(static_cast<int>(size)));
            EXPECT_THAT(finish(sent), ElementsAre(static_cast<int>(size)));
            expect_same(*from, 3, *to, 64, size);
            EXPECT_THAT(to->bytes(64 + size, 64), Each(std::byte{0}));
        }
    }
}

TEST_F(NcclNetMessages, OfNoBytesArrive) {
    const auto from = memory(pair_.send, 64);
    const auto to = memory(pair_.receive, 64);
    for (const std::size_t room : {0U, 64U}) {
        const Ticket sent = send(pair_.send, *from, 0, 0, 1);
        const Ticket received = receive(pair_.receive, *to, 0, room, 1);
        EXPECT_THAT(finish(received), ElementsAre(0));
        EXPECT_THAT(finish(sent), ElementsAre(0));
    }
}

TEST_F(NcclNetMessages, OfAGroupGoToTheBuffersOfTheirTags) {
    constexpr std::size_t part = 20000;
    constexpr std::size_t count = 8;
    const auto from = memory(pair_.send, count * part);
    const auto to = memory(pair_.receive, count * part);
    fill(from->bytes(0, count * part), 1);
    const std::vector<int> tags{40, 3, -7, 40, 0, 12, 11, 10};
    const std::vector<std::size_t> sizes{1, 20000, 0, 8193, 128, 19999, 4096, 17};
    std::vector<void*> data(count);
    for (std::size_t i = 0; i < count; ++i) {
        data[i] = to->data(i * part);
    }
    const Ticket received = receive(pair_.receive, data, std::vector<std::size_t>(count, part),
                                    tags, std::vector<void*>(count, to->handle()));
    // In another order, but for the two of one tag.
    for (const std::size_t i : {5U, 7U, 0U, 1U, 6U, 2U, 3U, 4U}) {
        EXPECT_FALSE(received->done) << "one is missing";
        static_cast<void>(send(pair_.send, *from, i * part, sizes[i], tags[i]));
        go_on();
    }
    EXPECT_THAT(finish(received), ElementsAre(1, 20000, 0, 8193, 128, 19999, 4096, 17));
    for (std::size_t i = 0; i < count; ++i) {
        expect_same(*from, i * part, *to, i * part, sizes[i]);
    }
}

TEST_F(NcclNetMessages, OfOneTagGoToTheGroupsInTheirOrder) {
    constexpr std::size_t part = 9000;
    constexpr std::size_t groups = 20;
    const auto from = memory(pair_.send, 2 * groups * part);
    const auto to = memory(pair_.receive, 2 * groups * part);
    fill(from->bytes(0, 2 * groups * part), 1);
    std::vector<Ticket> sent;
    std::vector<Ticket> received;
    for (std::size_t group = 0; group < groups; ++group) {
        const std::size_t at = 2 * group * part;
        received.push_back(receive(pair_.receive, {to->data(at), to->data(at + part)}, {part, part},
                                   {1, 2}, {to->handle(), to->handle()}));
        sent.push_back(send(pair_.send, *from, at + part, part - group, 2));
        sent.push_back(send(pair_.send, *from, at, part / 2 + group, 1));
    }
    for (std::size_t group = groups; group-- > 0;) {
        const std::size_t at = 2 * group * part;
        const auto sizes = finish(received[group]);
        EXPECT_THAT(sizes, ElementsAre(part / 2 + group, part - group));
        expect_same(*from, at, *to, at, static_cast<std::size_t>(sizes[0]));
        expect_same(*from, at + part, *to, at + part, static_cast<std::size_t>(sizes[1]));
    }
    for (const Ticket& ticket : sent) {
        finish(ticket);
    }
}

TEST_F(NcclNetMessages, AreReportedInTheOrderInWhichNcclTestsThem) {
    constexpr std::size_t count = 32;
    constexpr std::size_t part = 5000;
    const auto from = memory(pair_.send, count * part);
    const auto to = memory(pair_.receive, count * part);
    fill(from->bytes(0, count * part), 9);
    // They are not followed: nothing but what is asked for here is tested.
    std::vector<void*> sent(count);
    std::vector<void*> received(count);
    for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(net().irecv(pair_.receive, {to->data(i * part)}, {part}, {4}, {to->handle()},
                              received[i]),
                  Result::success);
        ASSERT_EQ(
            net().isend(pair_.send, from->data(i * part), part - i, 4, from->handle(), sent[i]),
            Result::success);
    }
    for (const std::size_t i : {31U, 0U, 17U, 16U, 1U, 30U}) {
        int size = -1;
        int done = 0;
        until([&] {
            int sender_done = 0;
            if (sent[i] != nullptr) {
                EXPECT_EQ(net().test(sent[i], sender_done, nullptr), Result::success);
            }
            if (sender_done != 0) {
                sent[i] = nullptr;
            }
            EXPECT_EQ(net().test(received[i], done, &size), Result::success);
            return done != 0;
        });
        received[i] = nullptr;
        EXPECT_EQ(size, static_cast<int>(part - i));
    }
    for (std::size_t i = count; i-- > 0;) {
        for (void* const request : {sent[i], received[i]}) {
            if (request != nullptr) {
                finish(follow(request));
            }
        }
    }
    for (std::size_t i = 0; i < count; ++i) {
        expect_same(*from, i * part, *to, i * part, part - i);
    }
}

TEST_F(NcclNetMessages, AreAsManyAtOnceAsNcclHas) {
    // 32 receives of 8 messages, before anything is tested.
    constexpr std::size_t count = 256;
    const auto from = memory(pair_.send, count);
    const auto to = memory(pair_.receive, count);
    fill(from->bytes(0, count), 2);
    std::vector<Ticket> requests;
    for (std::size_t i = 0; i < count; i += 8) {
        std::vector<void*> data(8);
        std::vector<int> tags(8);
        for (std::size_t part = 0; part < 8; ++part) {
            data[part] = to->data(i + part);
            tags[part] = static_cast<int>(part);
        }
        void* request = nullptr;
        ASSERT_EQ(net().irecv(pair_.receive, data, std::vector<std::size_t>(8, 1), tags,
                              std::vector<void*>(8, to->handle()), request),
                  Result::success);
        ASSERT_NE(request, nullptr) << i;
        requests.push_back(follow(request, 8));
    }
    for (std::size_t i = 0; i < count; ++i) {
        void* request = nullptr;
        ASSERT_EQ(net().isend(pair_.send, from->data(i), 1, static_cast<int>(i % 8), from->handle(),
                              request),
                  Result::success);
        ASSERT_NE(request, nullptr) << i;
        requests.push_back(follow(request));
    }
    // One more waits until there is room.
    void* one_more = &requests;
    EXPECT_EQ(net().isend(pair_.send, from->data(), 1, 0, from->handle(), one_more),
              Result::success);
    EXPECT_THAT(one_more, IsNull());
    one_more = &requests;
    EXPECT_EQ(net().irecv(pair_.receive, {to->data()}, {1}, {0}, {to->handle()}, one_more),
              Result::success);
    EXPECT_THAT(one_more, IsNull());
    for (const Ticket& ticket : requests) {
        EXPECT_THAT(finish(ticket), Each(1));
    }
    expect_same(*from, 0, *to, 0, count);
    const Ticket received = receive(pair_.receive, *to, 0, 1, 0);
    static_cast<void>(send(pair_.send, *from, 0, 1, 0));
    EXPECT_THAT(finish(received), ElementsAre(1));
}

TEST_F(NcclNetMessages, GoBothWaysBetweenTwoPairs) {
    const Pair back = connect();
    constexpr std::size_t size = 300000;
    const auto here = memory(pair_.send, 2 * size);
    const auto there = memory(pair_.receive, 2 * size);
    fill(here->bytes(0, size), 1);
    fill(there->bytes(size, size), 2);
    const Ticket forth = receive(pair_.receive, *there, 0, size, 0);
    const Ticket home = receive(back.receive, *here, size, size, 0);
    static_cast<void>(send(pair_.send, *here, 0, size, 0));
    static_cast<void>(send(back.send, *there, size, size, 0));
    finish(forth);
    finish(home);
    expect_same(*here, 0, *there, 0, size);
    expect_same(*there, size, *here, size, size);
}

TEST_F(NcclNetMessages, ThatAreTooLongFailAtBothEnds) {
    const auto from = memory(pair_.send, 64);
    const auto to = memory(pair_.receive, 64);
    const Ticket received = receive(pair_.receive, *to, 0, 10, 0);
    const Ticket sent = send(pair_.send, *from, 0, 11, 0);
    finish(received);
    finish(sent);
    EXPECT_EQ(received->result, Result::invalid_usage);
    EXPECT_EQ(sent->result, Result::invalid_usage);
    EXPECT_THAT(take_log(), HasSubstr("W NET/rdmabuf : soft0: request of 10 bytes: Message too "
                                      "long (EMSGSIZE)"));
}

TEST_F(NcclNetMessages, OutsideTheirMemoryAreRefused) {
    const auto from = memory(pair_.send, 64);
    const auto to = memory(pair_.receive, 64);
    void* request = nullptr;
    EXPECT_EQ(net().isend(pair_.send, from->data(60), 5, 0, from->handle(), request),
              Result::invalid_usage);
    EXPECT_THAT(request, IsNull());
    EXPECT_THAT(take_log(), HasSubstr("send of 5 bytes: "));
    EXPECT_EQ(net().irecv(pair_.receive, {to->data(60)}, {5}, {0}, {to->handle()}, request),
              Result::invalid_usage);
    EXPECT_THAT(request, IsNull());
    EXPECT_THAT(take_log(), HasSubstr("receive of 5 bytes: "));
}

TEST_F(NcclNetMessages, OfMoreThanAGroupAreRefused) {
    const auto to = memory(pair_.receive, 64);
    for (const std::size_t count : {0U, 9U}) {
        void* request = nullptr;
        EXPECT_EQ(net().irecv(pair_.receive, std::vector<void*>(count, to->data()),
                              std::vector<std::size_t>(count, 1), std::vector<int>(count, 0),
                              std::vector<void*>(count, to->handle()), request),
                  Result::internal_error);
        EXPECT_THAT(request, IsNull());
    }
}

TEST_F(NcclNetMessages, FromAPeerThatCloses) {
    const Pair other = connect();
    const auto from = memory(pair_.send, 64);
    const auto to = memory(pair_.receive, 64);
    const Ticket received = receive(pair_.receive, *to, 0, 64, 0);
    close_send(pair_);
    finish(received);
    EXPECT_EQ(received->result, Result::system_error) << "it will never come";
    EXPECT_THAT(take_log(), HasSubstr("W NET/rdmabuf : soft0: request of 64 bytes: "));
    // The other communicators go on.
    const Ticket still = receive(other.receive, *to, 0, 64, 0);
    static_cast<void>(send(other.send, *from, 0, 8, 0));
    EXPECT_THAT(finish(still), ElementsAre(8));
}

} // namespace
} // namespace nccl_net_test
