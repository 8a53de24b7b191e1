// SPDX-License-Identifier: BSD-3-Clause
// Memory windows: what a peer may do through their rkeys, and when.
#include <cerrno>
#include <cstdint>
#include <optional>

#include <rdmabuf/memory_window.hpp>
#include <rdmabuf/work_request.hpp>

#include "posting_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::error_of;
using testing::fails_with;
using testing::PostingTest;
using testing::record;
using testing::signaled;

class MemoryWindowTest : public PostingTest {
  protected:
    static constexpr std::size_t length = 100;

    std::optional<MemoryRegion> bindable_ =
        MemoryRegion(basics_.pd, memory_.data(), memory_.size(),
                     {.access = Access::local_write | Access::memory_window_bind});

    [[nodiscard]] MemoryWindowBinding part(Access access = Access::remote_write) const {
        return {.region = *bindable_, .offset = target, .length = length, .access = access};
    }
    /// Binds the window to part(), and waits for the completion.
    void bind(MemoryWindow& window, const MemoryWindowBinding& binding) {
        ASSERT_TRUE(qp().post_bind(window, binding, {.wr_id = 1}));
        sent(1, IBV_WC_BIND_MW);
    }
    /// The status of a write of the first @p count bytes by the peer.
    ibv_wc_status write(RemoteAddress remote, std::uint32_t count = length) {
        EXPECT_TRUE(peer_->post_write(region_.sge(0, count), remote, {.wr_id = 2}));
        return status_of(2);
    }
    [[nodiscard]] ibv_wc_status status_of(std::uint64_t wr_id) const {
        WorkCompletion completion{};
        EXPECT_EQ(basics_.cq.wait({&completion, 1}, std::chrono::seconds(20)), 1U);
        EXPECT_EQ(completion.wr_id, wr_id);
        return completion.status;
    }
    /// Connects qp(), on which windows are bound, with the queue pair of the peer.
    void connect_peer(const QueuePairOptions& wanted) {
        PreparedQueuePair owner = QueuePair::prepare(basics_.pd, wanted);
        PreparedQueuePair peer = QueuePair::prepare(basics_.pd, wanted);
        const QueuePairAddress address = owner.address();
        qp_.emplace(std::move(owner).connect(peer.address()));
        peer_.emplace(std::move(peer).connect(address));
    }
    MemoryWindowTest() { connect_peer(options()); }

    std::optional<QueuePair> peer_;
};

TEST_F(MemoryWindowTest, OfType1OpensPartOfARegionToWrites) {
    MemoryWindow window(basics_.pd, MemoryWindowType::type_1);
    EXPECT_EQ(window.type(), MemoryWindowType::type_1);
    const std::uint32_t before = window.rkey();
    bind(window, part());
    EXPECT_NE(window.rkey(), before);
    const RemoteRegion remote = window.remote(part());
    EXPECT_EQ(remote.address, region_.iova() + target);
    EXPECT_EQ(remote.length, length);
    EXPECT_EQ(remote.rkey, window.rkey());
    EXPECT_EQ(write(remote), IBV_WC_SUCCESS);
    EXPECT_EQ(bytes(target, length), bytes(0, length));
    EXPECT_EQ(write(remote, length + 1), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindowTest, OfType2IsBoundByAWorkRequestAndInvalidatedOnThisSide) {
    MemoryWindow window(basics_.pd, MemoryWindowType::type_2);
    const std::uint32_t next = window.next_rkey();
    ASSERT_TRUE(qp().post_bind(window, part(), {.wr_id = 42}));
    const auto& request = only(IBV_WR_BIND_MW, signaled).request;
    EXPECT_EQ(request.bind_mw.mw, window.native());
    EXPECT_EQ(request.bind_mw.rkey, next);
    EXPECT_EQ(request.bind_mw.bind_info.mr, bindable_->native());
    EXPECT_EQ(request.bind_mw.bind_info.addr, bindable_->iova() + target);
    EXPECT_EQ(request.bind_mw.bind_info.length, length);
    EXPECT_EQ(request.bind_mw.bind_info.mw_access_flags, unsigned{IBV_ACCESS_REMOTE_WRITE});
    sent(42, IBV_WC_BIND_MW);
    EXPECT_EQ(window.rkey(), next);
    EXPECT_EQ(write(window.remote(part())), IBV_WC_SUCCESS);

    ASSERT_TRUE(qp().post_local_inv(window.rkey(), {.wr_id = 3}));
    sent(3, IBV_WC_LOCAL_INV);
    EXPECT_EQ(record().sends.back().request.invalidate_rkey, next);
    const RemoteRegion invalid = window.remote(part());
    bind(window, part());
    EXPECT_EQ(write(window.remote(part())), IBV_WC_SUCCESS);
    EXPECT_EQ(write(invalid), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindowTest, OfType2IsInvalidatedByAMessageOfThePeer) {
    MemoryWindow window(basics_.pd, MemoryWindowType::type_2);
    for (const bool in_a_list : {false, true}) {
        bind(window, part());
        receive(1);
        // Bound on qp(), so the message that invalidates it comes from the peer.
        if (in_a_list) {
            SendList<1> list;
            list.send_inv(local_, window.rkey(), {.wr_id = 5});
            ibv_send_wr* failed = nullptr;
            ASSERT_TRUE(peer_->post(list, failed));
        } else {
            ASSERT_TRUE(peer_->post_send_inv(local_, window.rkey(), {.wr_id = 5}));
        }
        sent(5, IBV_WC_SEND);
        const WorkCompletion arrived = received(1);
        EXPECT_NE(arrived.wc_flags & IBV_WC_WITH_INV, 0U);
        EXPECT_EQ(arrived.invalidated_rkey, window.rkey());
        EXPECT_EQ(bytes(arrivals, total), gathered());
    }
    EXPECT_EQ(write(window.remote(part())), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindowTest, OfType2IsBoundAndInvalidatedInLists) {
    MemoryWindow window(basics_.pd, MemoryWindowType::type_2);
    const std::uint32_t rkey = window.next_rkey();
    SendList<3> list;
    list.bind(window, rkey, part(), {.wr_id = 1});
    list.send(local_, {.wr_id = 2});
    list.local_inv(rkey, {.wr_id = 3});
    ASSERT_TRUE(peer_->post_recv(arrival_, 1));
    EXPECT_NE(window.rkey(), rkey);
    ibv_send_wr* failed = nullptr;
    ASSERT_TRUE(qp().post(list, failed));
    window.set_rkey(rkey);
    EXPECT_EQ(window.native()->rkey, rkey);
    sent(1, IBV_WC_BIND_MW);
    sent(2, IBV_WC_SEND);
    sent(3, IBV_WC_LOCAL_INV);
    EXPECT_EQ(write({part().remote_address(), rkey}), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindowTest, OfType2IsBoundAndInvalidatedInBatches) {
    QueuePairOptions wanted = options();
    wanted.batch_operations =
        IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
    connect_peer(wanted);
    MemoryWindow window(basics_.pd, MemoryWindowType::type_2);
    const std::uint32_t rkey = window.next_rkey();
    {
        WorkBatch batch = qp().batch();
        batch.bind(window, rkey, part(), {.wr_id = 1});
        ASSERT_TRUE(batch.complete());
        window.set_rkey(rkey);
    }
    const auto& sends = record().sends;
    EXPECT_EQ(sends.at(0).request.bind_mw.mw, window.native());
    EXPECT_EQ(sends.at(0).request.bind_mw.rkey, rkey);
    EXPECT_EQ(sends.at(0).request.bind_mw.bind_info.addr, part().remote_address());
    EXPECT_EQ(sends.at(0).request.bind_mw.bind_info.length, length);
    sent(1, IBV_WC_BIND_MW);
    EXPECT_EQ(write(window.remote(part())), IBV_WC_SUCCESS);
    EXPECT_EQ(bytes(target, length), bytes(0, length));

    receive(1);
    {
        WorkBatch batch = peer_->batch();
        batch.send_inv(local_, rkey, {.wr_id = 3});
        ASSERT_TRUE(batch.complete());
    }
    sent(3, IBV_WC_SEND);
    EXPECT_EQ(received(1).invalidated_rkey, rkey);

    WorkBatch batch = qp().batch();
    const std::uint32_t next = window.next_rkey();
    batch.bind(window, next, part(), {.wr_id = 4});
    batch.local_inv(next, {.wr_id = 5});
    ASSERT_TRUE(batch.complete());
    window.set_rkey(next);
    EXPECT_EQ(sends.back().request.invalidate_rkey, next);
    sent(4, IBV_WC_BIND_MW);
    sent(5, IBV_WC_LOCAL_INV);
    EXPECT_EQ(write(window.remote(part())), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindowTest, OfZeroBaseCountsFromItsBeginning) {
    const MemoryWindowBinding zero_based = part(Access::remote_write | Access::zero_based);
    MemoryWindow window(basics_.pd, MemoryWindowType::type_2);
    bind(window, zero_based);
    EXPECT_EQ(window.remote(zero_based).address, 0U);
    EXPECT_EQ(write(window.remote(zero_based)), IBV_WC_SUCCESS);
    EXPECT_EQ(bytes(target, length), bytes(0, length));
    MemoryWindow other(basics_.pd, MemoryWindowType::type_1);
    EXPECT_EQ(qp().post_bind(other, zero_based), Status(EINVAL));
}

TEST_F(MemoryWindowTest, KeepsItsRkeyWhenPostingFails) {
    for (const MemoryWindowType type : {MemoryWindowType::type_1, MemoryWindowType::type_2}) {
        MemoryWindow window(basics_.pd, type);
        const std::uint32_t rkey = window.rkey();
        testing::fail_next(type == MemoryWindowType::type_1 ? "ibv_bind_mw" : "ibv_post_send",
                           ENOMEM);
        EXPECT_EQ(qp().post_bind(window, part()), Status(ENOMEM));
        EXPECT_EQ(window.rkey(), rkey);
    }
}

TEST_F(MemoryWindowTest, IsRefusedWhereTheDeviceHasNone) {
    testing::fail_next("ibv_alloc_mw", ENOMEM);
    EXPECT_THAT(
        error_of([&] { MemoryWindow(basics_.pd, MemoryWindowType::type_1); }),
        fails_with("ibv_alloc_mw", ENOMEM, "type 1: soft0 has windows of this type, at most"));
}

class WindowlessTest : public testing::SoftverbsTest {};

TEST_F(WindowlessTest, DeviceSaysThatItHasNoMemoryWindows) {
    testing::remove_feature(SOFTVERBS_FEATURE_MW);
    const testing::Basics basics;
    EXPECT_THAT(error_of([&] { MemoryWindow(basics.pd, MemoryWindowType::type_2); }),
                fails_with("ibv_alloc_mw", EOPNOTSUPP, "type 2: soft0"));
}

} // namespace
} // namespace rdmabuf
