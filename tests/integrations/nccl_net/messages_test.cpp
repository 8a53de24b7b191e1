// SPDX-License-Identifier: BSD-3-Clause
//
// Calls that proxies of NCCL rarely make.
#include <algorithm>
#include <string>

#include "fixture.hpp"

namespace nccl_net_test {
namespace {

using rdmabuf::testing::fill;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::NotNull;

class NcclNetMessages : public NcclNet {
  protected:
    NcclNetMessages() {
        EXPECT_EQ(load(), Result::success);
        pair_ = connect();
    }

    Pair pair_;
};

TEST_F(NcclNetMessages, WaitForTheirReceive) {
    const auto from = memory(pair_.send, 64);
    const auto to = memory(pair_.receive, 64);
    void* request = &pair_;
    EXPECT_EQ(net().isend(pair_.send, from->data(), 8, 3, from->handle(), request),
              Result::success);
    EXPECT_THAT(request, IsNull());
    const Ticket other = receive(pair_.receive, *to, 0, 64, 4);
    static_cast<void>(send(pair_.send, *from, 0, 8, 4));
    finish(other);
    EXPECT_EQ(net().isend(pair_.send, from->data(), 8, 3, from->handle(), request),
              Result::success);
    EXPECT_THAT(request, IsNull()) << "the receive had another tag";
}

// The completion of an RDMA write shows that the message was acknowledged. NCCL may then close the
// connection.
TEST_F(NcclNetMessages, OfNoBytesAreWrittenToTheirReceive) {
    const auto from = memory(pair_.send, 64);
    const auto to = memory(pair_.receive, 64);
    for (const std::size_t room : {0U, 64U}) {
        void* request = &pair_;
        EXPECT_EQ(net().isend(pair_.send, from->data(), 0, 1, from->handle(), request),
                  Result::success);
        EXPECT_THAT(request, IsNull());
        const Ticket received = receive(pair_.receive, *to, 0, room, 1);
        rdmabuf::testing::forget_calls();
        const Ticket sent = send(pair_.send, *from, 0, 0, 1);
        EXPECT_EQ(std::ranges::count_if(rdmabuf::testing::record().sends,
                                        [](const rdmabuf::testing::Send& posted) {
                                            return posted.request.opcode ==
                                                   IBV_WR_RDMA_WRITE_WITH_IMM;
                                        }),
                  1);
        EXPECT_THAT(finish(received), ElementsAre(0));
        EXPECT_THAT(finish(sent), ElementsAre(0));
    }
}

TEST_F(NcclNetMessages, OfOneTagGoToTheBuffersOfAGroupInTheirOrder) {
    constexpr std::size_t part = 20000;
    const auto from = memory(pair_.send, 3 * part);
    const auto to = memory(pair_.receive, 3 * part);
    fill(from->bytes(0, 3 * part), 1);
    const Ticket received =
        receive(pair_.receive, {to->data(), to->data(part), to->data(2 * part)}, {part, part, part},
                {40, -7, 40}, {to->handle(), to->handle(), to->handle()});
    const std::vector<int> sizes{1, 20000, 19999};
    for (const std::size_t i : {0U, 2U, 1U}) {
        EXPECT_FALSE(received->done) << "one is missing";
        static_cast<void>(send(pair_.send, *from, i * part, static_cast<std::size_t>(sizes[i]),
                               i == 1 ? -7 : 40));
        go_on();
    }
    EXPECT_THAT(finish(received), ::testing::ElementsAreArray(sizes));
    for (std::size_t i = 0; i < 3; ++i) {
        const auto size = static_cast<std::size_t>(sizes[i]);
        EXPECT_TRUE(std::ranges::equal(from->bytes(i * part, size), to->bytes(i * part, size)));
    }
}

TEST_F(NcclNetMessages, OfTooLargeAGroupAreRefusedWithAReason) {
    const auto to = memory(pair_.receive, 64);
    void* request = &pair_;
    EXPECT_EQ(net().irecv(pair_.receive, std::vector<void*>(9, to->data()),
                          std::vector<std::size_t>(9, 1), std::vector<int>(9),
                          std::vector<void*>(9, to->handle()), request),
              Result::internal_error);
    EXPECT_THAT(request, IsNull());
    EXPECT_THAT(take_log(), HasSubstr("W NET/rdmabuf : a grouped receive has 1 to 8 messages"));
}

TEST_F(NcclNetMessages, WaitForRoomIfMoreReceivesArePostedThanCanBeAdvertised) {
    constexpr std::size_t groups = 8;
    constexpr std::size_t count = 8 * groups;
    const auto from = memory(pair_.send, count);
    const auto to = memory(pair_.receive, count);
    fill(from->bytes(0, count), 2);
    std::vector<Ticket> received;
    std::vector<Ticket> sent;
    for (std::size_t i = 0; i < count; i += 8) {
        std::vector<void*> data(8);
        std::vector<int> tags(8);
        for (std::size_t part = 0; part < 8; ++part) {
            data[part] = to->data(i + part);
            tags[part] = static_cast<int>(part);
        }
        const auto post = [&] {
            void* request = nullptr;
            EXPECT_EQ(net().irecv(pair_.receive, data, std::vector<std::size_t>(8, 1), tags,
                                  std::vector<void*>(8, to->handle()), request),
                      Result::success);
            return request;
        };
        void* request = post();
        if (i == count / 2) {
            EXPECT_THAT(request, IsNull()) << "32 receives are advertised";
        }
        if (request == nullptr) {
            for (std::size_t at = sent.size(); at < i; ++at) {
                sent.push_back(send(pair_.send, *from, at, 1, static_cast<int>(at % 8)));
            }
            until([&] { return (request = post()) != nullptr; });
        }
        received.push_back(follow(request, 8));
    }
    while (sent.size() < count) {
        const std::size_t at = sent.size();
        sent.push_back(send(pair_.send, *from, at, 1, static_cast<int>(at % 8)));
    }
    for (const Ticket& ticket : received) {
        EXPECT_THAT(finish(ticket), Each(1));
    }
    EXPECT_TRUE(std::ranges::equal(from->bytes(0, count), to->bytes(0, count)));
}

// The sender waits until the receive is advertised.
TEST_F(NcclNetMessages, ArriveIfTheAdvertisementOfTheirReceiveFailsWithEnomem) {
    constexpr std::size_t size = 3;
    const auto from = memory(pair_.send, 2 * size);
    const auto to = memory(pair_.receive, 2 * size);
    for (const unsigned call : {1U, 2U}) {
        fill(from->bytes(0, 2 * size), call);
        ASSERT_EQ(softverbs_fail_call("ibv_post_send", call, ENOMEM), 0);
        const Ticket received = receive(pair_.receive, {to->data(), to->data(size)}, {size, size},
                                        {5, 5}, {to->handle(), to->handle()});
        static_cast<void>(send(pair_.send, *from, 0, size, 5));
        static_cast<void>(send(pair_.send, *from, size, size, 5));
        EXPECT_THAT(finish(received), Each(3));
        EXPECT_TRUE(std::ranges::equal(from->bytes(0, 2 * size), to->bytes(0, 2 * size)));
    }
}

TEST_F(NcclNetMessages, ThatAreTooLongAreTruncated) {
    const auto from = memory(pair_.send, 64);
    const auto to = memory(pair_.receive, 64);
    fill(from->bytes(0, 64), 3);
    for (const int room : {0, 10}) {
        const auto size = static_cast<std::size_t>(room);
        const Ticket received = receive(pair_.receive, *to, 0, size, 0);
        // The receives are advertised in their order.
        static_cast<void>(receive(pair_.receive, *to, 32, 1, 1));
        finish(send(pair_.send, *from, 32, 1, 1));
        void* request = nullptr;
        EXPECT_EQ(net().isend(pair_.send, from->data(), size + 1, 0, from->handle(), request),
                  Result::success);
        ASSERT_THAT(request, NotNull()) << "a receive of " << room << " bytes is not advertised";
        EXPECT_THAT(finish(follow(request)), ElementsAre(room));
        EXPECT_THAT(finish(received), ElementsAre(room));
        EXPECT_TRUE(std::ranges::equal(from->bytes(0, size), to->bytes(0, size)));
        EXPECT_EQ(*to->data(size), std::byte{0});
    }
}

TEST_F(NcclNetMessages, OutsideTheirMemoryAreRefused) {
    const auto from = memory(pair_.send, 64);
    const auto to = memory(pair_.receive, 64);
    void* request = nullptr;
    static_cast<void>(receive(pair_.receive, *to, 0, 64, 0));
    Result result = Result::success;
    until([&] {
        result = net().isend(pair_.send, from->data(60), 5, 0, from->handle(), request);
        return result != Result::success;
    });
    EXPECT_EQ(result, Result::invalid_usage);
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
    EXPECT_EQ(received->result, Result::remote_error);
    EXPECT_THAT(take_log(), HasSubstr("W NET/rdmabuf : soft0: request of 64 bytes: "));
    // The other communicators go on.
    const Ticket still = receive(other.receive, *to, 0, 64, 0);
    static_cast<void>(send(other.send, *from, 0, 8, 0));
    EXPECT_THAT(finish(still), ElementsAre(8));
    // A send without a receive fails, too.
    close_receive(other);
    Result result = Result::success;
    void* request = nullptr;
    until([&] {
        result = net().isend(other.send, from->data(), 8, 0, from->handle(), request);
        return result != Result::success;
    });
    EXPECT_EQ(result, Result::remote_error);
    EXPECT_THAT(request, IsNull());
    EXPECT_THAT(take_log(), HasSubstr("W NET/rdmabuf : soft0: "));
}

} // namespace
} // namespace nccl_net_test
