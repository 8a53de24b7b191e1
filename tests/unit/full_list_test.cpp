// SPDX-License-Identifier: BSD-3-Clause
// Lists of work requests that have no room for another request, compiled without assertions
// (NDEBUG).
#include <array>
#include <cstddef>

#include <rdmabuf/shared_receive_queue.hpp>
#include <rdmabuf/work_request.hpp>

#include "posting_fixture.hpp"

#ifndef NDEBUG
#error "this test is for builds without assertions"
#endif

namespace rdmabuf {
namespace {

using testing::PostingTest;
using testing::record;

using FullList = PostingTest;

/// Whatever lies behind a list in memory must not be overwritten by one request too many.
template <class List>
struct Guarded {
    List list;
    std::array<std::byte, 256> behind{};
};

TEST_F(FullList, OfSendsDropsTheRequestAndPostsNothing) {
    Guarded<SendList<2>> guarded;
    for (std::uint64_t id = 1; id <= 3; ++id) {
        guarded.list.write(local_, remote_, {.wr_id = id});
    }
    guarded.list.fetch_add(word_, remote_, 1, {.wr_id = 4});
    EXPECT_EQ(guarded.behind, decltype(guarded.behind){});
    EXPECT_TRUE(guarded.list.overflowed());
    EXPECT_EQ(guarded.list.size(), 2U);

    ibv_send_wr* failed = nullptr;
    EXPECT_EQ(qp().post(guarded.list, failed), Status(E2BIG));
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->wr_id, 1U);
    EXPECT_TRUE(record().sends.empty());
}

TEST_F(FullList, OfReceivesDropsTheRequestAndPostsNothing) {
    Guarded<RecvList<2>> guarded;
    for (std::uint64_t id = 1; id <= 3; ++id) {
        guarded.list.recv(local_, id);
    }
    EXPECT_EQ(guarded.behind, decltype(guarded.behind){});
    EXPECT_TRUE(guarded.list.overflowed());

    ibv_recv_wr* failed = nullptr;
    EXPECT_EQ(qp().post(guarded.list, failed), Status(E2BIG));
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->wr_id, 1U);
    const SharedReceiveQueue srq(basics_.pd, {.max_wr = 8, .max_sge = 2});
    EXPECT_EQ(srq.post(guarded.list, failed), Status(E2BIG));
    EXPECT_TRUE(record().receives.empty());
}

TEST_F(FullList, CanBeUsedAgainAfterItWasCleared) {
    SendList<1> list;
    list.write(local_, remote_, {.wr_id = 1});
    list.write(local_, remote_, {.wr_id = 2});
    list.clear();
    EXPECT_FALSE(list.overflowed());
    list.write(local_, remote_, {.wr_id = 3});
    ibv_send_wr* failed = nullptr;
    EXPECT_TRUE(qp().post(list, failed));
    sent(3, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(record().sends.size(), 1U);
}

} // namespace
} // namespace rdmabuf
