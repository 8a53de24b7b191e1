// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <array>

#include "verbs_test.hpp"

namespace {

using namespace softverbs_test;

class SharedReceiveQueue : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        cq = make_cq(100);
    }
    UniqueSrq make_srq(std::uint32_t max_wr, std::uint32_t max_sge = 2) {
        ibv_srq_init_attr init{};
        init.attr.max_wr = max_wr;
        init.attr.max_sge = max_sge;
        return UniqueSrq(ibv_create_srq(pd.get(), &init));
    }
    int error_of(const ibv_srq_init_attr_ex& attr) {
        ibv_srq_init_attr_ex copy = attr;
        ibv_srq* srq = ibv_create_srq_ex(context.get(), &copy);
        const int error = errno;
        if (srq != nullptr) {
            EXPECT_EQ(ibv_destroy_srq(srq), 0);
            return 0;
        }
        return error;
    }
    UniqueQp make_qp_with(ibv_srq* srq, ibv_qp_type type = IBV_QPT_RC) {
        ibv_qp_init_attr_ex init = qp_attributes(type, cq.get());
        init.srq = srq;
        return make_qp(init);
    }
    /// Posts @p count receive requests. Returns the number of accepted requests, and the error.
    static std::pair<std::size_t, int> receive(ibv_srq* srq, std::size_t count,
                                               std::uint64_t first = 0) {
        std::vector<ibv_recv_wr> list(count);
        for (std::size_t i = 0; i < count; ++i) {
            list[i].wr_id = first + i;
            list[i].next = i + 1 < count ? &list[i + 1] : nullptr;
        }
        ibv_recv_wr* bad = nullptr;
        const int error = ibv_post_srq_recv(srq, list.data(), &bad);
        return {error == 0 ? count : static_cast<std::size_t>(bad - list.data()), error};
    }
    static void send(ibv_qp* qp, std::uint64_t wr_id) {
        ibv_send_wr wr{};
        wr.wr_id = wr_id;
        wr.opcode = IBV_WR_SEND;
        ibv_send_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
    }
    static int set(ibv_srq* srq, int mask, std::uint32_t max_wr, std::uint32_t limit) {
        ibv_srq_attr attr{};
        attr.max_wr = max_wr;
        attr.srq_limit = limit;
        return ibv_modify_srq(srq, &attr, mask);
    }

    UniqueCq cq;
};

TEST_F(SharedReceiveQueue, isMadeWithinTheDevicesLimits) {
    const ibv_device_attr limits = attributes();
    const auto most = static_cast<std::uint32_t>(limits.max_srq_wr);
    EXPECT_EQ(make_srq(0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(make_srq(most + 1), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(make_srq(1, static_cast<std::uint32_t>(limits.max_srq_sge) + 1), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_NE(make_srq(most), nullptr);
}

TEST_F(SharedReceiveQueue, isOfTheTypesThatTheDeviceHas) {
    ibv_srq_init_attr_ex attr{};
    attr.attr.max_wr = 1;
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    attr.pd = pd.get();
    EXPECT_EQ(error_of(attr), 0);
    attr.srq_type = IBV_SRQT_TM;
    EXPECT_EQ(error_of(attr), EINVAL); // without a completion queue
    attr.srq_type = IBV_SRQT_XRC;
    EXPECT_EQ(error_of(attr), EINVAL); // without a domain
    attr.srq_type = IBV_SRQT_BASIC;
    attr.comp_mask |= 1U << 20;
    EXPECT_EQ(error_of(attr), EINVAL);
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
    EXPECT_EQ(error_of(attr), EINVAL);
}

TEST_F(SharedReceiveQueue, takesWhatItHasRoomFor) {
    const UniqueSrq srq = make_srq(5);
    EXPECT_EQ(receive(srq.get(), 7), std::pair(std::size_t{5}, ENOMEM));
    const UniqueSrq other = make_srq(5);
    ibv_recv_wr wr{};
    wr.num_sge = 3;
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_srq_recv(other.get(), &wr, &bad), EINVAL);
    EXPECT_EQ(bad, &wr);
}

TEST_F(SharedReceiveQueue, isHeldByItsQueuePairs) {
    const UniqueSrq srq = make_srq(5);
    const UniqueQp qp = make_qp_with(srq.get());
    EXPECT_EQ(ibv_destroy_srq(srq.get()), EBUSY);
    expected_violations = 1;
    to_init(qp.get());
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(qp.get(), &wr, &bad), EINVAL) << "it has no queue of its own";
}

TEST_F(SharedReceiveQueue, checksItsReceivesAgainstItsOwnProtectionDomain) {
    const UniquePd other(ibv_alloc_pd(context.get()));
    ibv_srq_init_attr init{};
    init.attr.max_wr = 4;
    init.attr.max_sge = 1;
    const UniqueSrq srq(ibv_create_srq(other.get(), &init));
    ASSERT_NE(srq, nullptr);
    std::array<char, 8> target{};
    std::array<char, 8> source{'s', 'o', 'u', 'r', 'c', 'e'};
    const UniqueMr of_srq(
        ibv_reg_mr(other.get(), target.data(), target.size(), int{IBV_ACCESS_LOCAL_WRITE}));
    const UniqueMr of_qp = make_mr(target.data(), target.size());
    const UniqueMr from = make_mr(source.data(), source.size());
    const UniqueQp receiver = make_qp_with(srq.get());
    const UniqueQp sender = make_qp(IBV_QPT_RC, cq.get());
    connect(receiver.get(), sender->qp_num);
    connect(sender.get(), receiver->qp_num);
    std::array<ibv_sge, 2> entries{
        ibv_sge{reinterpret_cast<std::uintptr_t>(target.data()), 8, of_srq->lkey},
        ibv_sge{reinterpret_cast<std::uintptr_t>(target.data()), 8, of_qp->lkey}};
    for (std::uint64_t i = 0; i < 2; ++i) {
        ibv_recv_wr wr{10 + i, nullptr, &entries.at(i), 1};
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_srq_recv(srq.get(), &wr, &bad), 0);
    }
    ibv_sge entry{reinterpret_cast<std::uintptr_t>(source.data()), 8, from->lkey};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = &entry;
    wr.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(sender.get(), &wr, &bad), 0);
    const auto received = poll(cq.get(), 1);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].wr_id, 10U);
    EXPECT_EQ(received[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(target, source);
    wr.wr_id = 1;
    ASSERT_EQ(ibv_post_send(sender.get(), &wr, &bad), 0);
    for (const ibv_wc& failed : poll(cq.get(), 2)) {
        EXPECT_EQ(failed.status, failed.wr_id == 11 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR);
    }
    EXPECT_EQ(next_event()->event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
}

TEST_F(SharedReceiveQueue, isResizedWithWhatIsInIt) {
    const UniqueSrq srq = make_srq(5);
    const UniqueQp receiver = make_qp_with(srq.get());
    const UniqueQp sender = make_qp(IBV_QPT_RC, cq.get());
    connect(receiver.get(), sender->qp_num);
    connect(sender.get(), receiver->qp_num);
    EXPECT_EQ(receive(srq.get(), 5).second, 0);
    EXPECT_EQ(set(srq.get(), IBV_SRQ_MAX_WR, 4, 0), EINVAL);
    EXPECT_EQ(set(srq.get(), IBV_SRQ_MAX_WR, 0, 0), EINVAL);
    ASSERT_EQ(set(srq.get(), IBV_SRQ_MAX_WR, 7, 0), 0);
    EXPECT_EQ(receive(srq.get(), 3, 5), std::pair(std::size_t{2}, ENOMEM));
    ibv_srq_attr attr{};
    ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
    EXPECT_EQ(attr.max_wr, 7U);
    EXPECT_EQ(attr.max_sge, 2U);
    for (std::uint64_t i = 0; i < 7; ++i) {
        send(sender.get(), 100);
    }
    const auto received = poll(cq.get(), 7);
    ASSERT_EQ(received.size(), 7U);
    for (std::uint64_t i = 0; i < 7; ++i) {
        EXPECT_EQ(received[i].wr_id, i);
        EXPECT_EQ(received[i].status, IBV_WC_SUCCESS);
        EXPECT_EQ(received[i].qp_num, receiver->qp_num);
    }
}

TEST_F(SharedReceiveQueue, saysOnceThatItRunsLow) {
    const UniqueSrq srq = make_srq(8);
    const UniqueQp receiver = make_qp_with(srq.get());
    const UniqueQp sender = make_qp(IBV_QPT_RC, cq.get());
    connect(receiver.get(), sender->qp_num);
    connect(sender.get(), receiver->qp_num);
    EXPECT_EQ(receive(srq.get(), 6).second, 0);
    EXPECT_EQ(set(srq.get(), IBV_SRQ_LIMIT, 0, 9), EINVAL);
    EXPECT_EQ(set(srq.get(), 1 << 5, 0, 1), EINVAL);
    ASSERT_EQ(set(srq.get(), IBV_SRQ_LIMIT, 0, 5), 0);
    send(sender.get(), 0);
    EXPECT_EQ(poll(cq.get(), 1).size(), 1U);
    EXPECT_FALSE(next_event()) << "five are left, which is not less than five";
    send(sender.get(), 0);
    EXPECT_EQ(poll(cq.get(), 1).size(), 1U);
    const auto event = next_event();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event->element.srq, srq.get());
    send(sender.get(), 0);
    EXPECT_EQ(poll(cq.get(), 1).size(), 1U);
    EXPECT_FALSE(next_event());
}

TEST_F(SharedReceiveQueue, survivesTheErrorsOfItsQueuePairs) {
    const UniqueSrq srq = make_srq(8);
    const UniqueQp failing = make_qp_with(srq.get());
    const UniqueQp receiver = make_qp_with(srq.get());
    const UniqueQp sender = make_qp(IBV_QPT_RC, cq.get());
    EXPECT_EQ(receive(srq.get(), 1, 77).second, 0);
    to_error(failing.get());
    const auto event = next_event();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    EXPECT_EQ(event->element.qp, failing.get());
    EXPECT_FALSE(next_event());
    EXPECT_TRUE(is_empty(cq.get())) << "the shared request is nobody's yet";
    connect(receiver.get(), sender->qp_num);
    connect(sender.get(), receiver->qp_num);
    send(sender.get(), 0);
    const auto received = poll(cq.get(), 1);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].wr_id, 77U);
}

TEST_F(SharedReceiveQueue, isNotResizedByTheMlx5Driver) {
    cq.reset();
    use("mlx5");
    EXPECT_EQ(attributes().device_cap_flags & IBV_DEVICE_SRQ_RESIZE, 0U);
    const UniqueSrq srq = make_srq(16);
    ASSERT_NE(srq, nullptr);
    ibv_srq_attr attr{};
    attr.max_wr = 32;
    attr.srq_limit = 8;
    EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR), EINVAL);
    EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EINVAL);
    EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), 0);
    ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
    EXPECT_EQ(attr.max_wr, 16U);
    EXPECT_EQ(attr.srq_limit, 8U);
}

} // namespace
