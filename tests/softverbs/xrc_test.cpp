// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include "pair_test.hpp"

namespace {

using namespace softverbs_test;

using UniqueXrcd = std::unique_ptr<ibv_xrcd, Destroyer<ibv_close_xrcd>>;

class Xrc : public PairTest {
  protected:
    void SetUp() override {
        PairTest::SetUp();
        path_ = testing::TempDir() + "softverbs-xrcd-XXXXXX";
        file_ = ::mkstemp(path_.data());
        ASSERT_GE(file_, 0);
    }
    void TearDown() override {
        initiator.reset();
        target.reset();
        srq.reset();
        xrcd.reset();
        ::close(file_);
        ::unlink(path_.c_str());
        PairTest::TearDown();
    }

    ibv_xrcd* open(int fd, int flags) {
        ibv_xrcd_init_attr attr{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, fd, flags};
        errno = 0;
        return ibv_open_xrcd(context.get(), &attr);
    }
    UniqueSrq make_srq(ibv_pd* domain) {
        ibv_srq_init_attr_ex attr{};
        attr.attr = {16, 1, 0};
        attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                         IBV_SRQ_INIT_ATTR_PD;
        attr.srq_type = IBV_SRQT_XRC;
        attr.xrcd = xrcd.get();
        attr.cq = b.cq.get();
        attr.pd = domain;
        UniqueSrq made(ibv_create_srq_ex(context.get(), &attr));
        EXPECT_NE(made, nullptr);
        return made;
    }
    static std::uint32_t number(ibv_srq* queue) {
        std::uint32_t result = 0;
        EXPECT_EQ(ibv_get_srq_num(queue, &result), 0);
        return result;
    }
    UniqueQp make_target() {
        ibv_qp_init_attr_ex init{};
        init.qp_type = IBV_QPT_XRC_RECV;
        init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        init.xrcd = xrcd.get();
        return make_qp(init);
    }
    void connect_target(ibv_qp* qp, std::uint32_t peer) {
        const ibv_qp_attr attr = pair_attributes(peer);
        const int place = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        ASSERT_EQ(modify(qp, attr, IBV_QPS_INIT, place), 0);
        const int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        ASSERT_EQ(modify(qp, attr, IBV_QPS_RTR, path), EINVAL);
        ASSERT_EQ(
            modify(qp, attr, IBV_QPS_RTR, path | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
        ASSERT_EQ(modify(qp, attr, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN), 0);
    }
    /// Connects an initiator in `a` with a target, and creates a shared receive queue for `b`.
    void start_xrc() {
        make();
        xrcd.reset(open(file_, O_CREAT));
        ASSERT_NE(xrcd, nullptr);
        srq = make_srq(pd.get());
        target = make_target();
        ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_XRC_SEND, a.cq.get());
        init.recv_cq = nullptr;
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ;
        initiator = make_qp(init);
        connect_target(target.get(), initiator->qp_num);
        const ibv_qp_attr attr = pair_attributes(target->qp_num);
        ASSERT_EQ(modify(initiator.get(), attr, IBV_QPS_INIT,
                         IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
                  0);
        ASSERT_EQ(modify(initiator.get(), attr, IBV_QPS_RTR,
                         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN),
                  0);
        ASSERT_EQ(modify(initiator.get(), attr, IBV_QPS_RTS,
                         IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC),
                  0);
    }
    int post_to(std::uint32_t srq_number, Request request) {
        request.wr.sg_list = &request.sge;
        request.wr.qp_type.xrc.remote_srqn = srq_number;
        ibv_send_wr* bad = nullptr;
        return ibv_post_send(initiator.get(), &request.wr, &bad);
    }
    void receive_at(ibv_srq* queue, std::uint64_t id, std::size_t offset) {
        ibv_sge sge{b.address(offset), 64, b.mr->lkey};
        ibv_recv_wr wr{id, nullptr, &sge, 1};
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_srq_recv(queue, &wr, &bad), 0);
    }

    std::string path_;
    int file_ = -1;
    UniqueXrcd xrcd;
    UniqueSrq srq;
    UniqueQp target, initiator;
};

TEST_F(Xrc, domainIsNamedByAFile) {
    EXPECT_EQ(open(file_, 0), nullptr);
    EXPECT_EQ(errno, EAGAIN);
    const UniqueXrcd one(open(file_, O_CREAT | O_EXCL));
    ASSERT_NE(one, nullptr);
    EXPECT_EQ(open(file_, O_CREAT | O_EXCL), nullptr);
    EXPECT_EQ(errno, EINVAL);
    const UniqueXrcd same(open(file_, 0));
    EXPECT_NE(same, nullptr);
    const UniqueXrcd unnamed(open(-1, O_CREAT));
    EXPECT_NE(unnamed, nullptr);
    // The kernel checks the flags only for a file (ib_uverbs_open_xrcd()).
    const UniqueXrcd without_flags(open(-1, 0));
    EXPECT_NE(without_flags, nullptr);
    const UniqueXrcd exclusive(open(-1, O_EXCL));
    EXPECT_NE(exclusive, nullptr);
    EXPECT_EQ(open(12345, O_CREAT), nullptr);
    EXPECT_EQ(errno, EBADF);
    EXPECT_EQ(open(file_, O_RDWR), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(Xrc, requestsChooseTheSharedReceiveQueue) {
    start_xrc();
    const UniqueSrq other = make_srq(pd.get());
    receive_at(srq.get(), 10, 0);
    receive_at(other.get(), 20, 64);
    a.fill(std::byte{5});
    ASSERT_EQ(post_to(number(other.get()), Request(a, b, IBV_WR_SEND, 1, 64)), 0);
    EXPECT_EQ(poll(a.cq.get(), 1).at(0).status, IBV_WC_SUCCESS);
    ibv_wc wc = poll(b.cq.get(), 1).at(0);
    EXPECT_EQ(wc.wr_id, 20U);
    EXPECT_EQ(wc.byte_len, 64U);
    EXPECT_EQ(wc.qp_num, target->qp_num);
    EXPECT_EQ(wc.src_qp, initiator->qp_num);
    EXPECT_EQ(b.memory[64], std::byte{5});
    EXPECT_EQ(b.memory[0], std::byte{0});
    ASSERT_EQ(post_to(number(srq.get()), Request(a, b, IBV_WR_SEND, 2, 64)), 0);
    EXPECT_EQ(poll(a.cq.get(), 1).at(0).status, IBV_WC_SUCCESS);
    EXPECT_EQ(poll(b.cq.get(), 1).at(0).wr_id, 10U);
    EXPECT_EQ(b.memory[63], std::byte{5});
}

TEST_F(Xrc, protectionDomainIsThatOfTheSharedReceiveQueue) {
    start_xrc();
    const UniquePd elsewhere(ibv_alloc_pd(context.get()));
    const UniqueSrq other = make_srq(elsewhere.get());
    ASSERT_EQ(post_to(number(srq.get()), Request(a, b, IBV_WR_RDMA_WRITE, 1, 64)), 0);
    EXPECT_EQ(poll(a.cq.get(), 1).at(0).status, IBV_WC_SUCCESS);
    ASSERT_EQ(post_to(number(other.get()), Request(a, b, IBV_WR_RDMA_WRITE, 2, 64)), 0);
    EXPECT_EQ(poll(a.cq.get(), 1).at(0).status, IBV_WC_REM_ACCESS_ERR);
    const auto event = next_event();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->event_type, IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(event->element.qp, target.get());
}

TEST_F(Xrc, noEventIsQueuedForATargetWhileItsDestructionWaitsForAnAcknowledgement) {
    timeout = 10;
    start_xrc();
    ibv_async_event established{};
    established.event_type = IBV_EVENT_COMM_EST;
    established.element.qp = target.get();
    ASSERT_EQ(softverbs_raise_event(context.get(), &established), 0);
    ASSERT_EQ(softverbs_raise_event(context.get(), &established), 0);
    ASSERT_EQ(ibv_get_async_event(context.get(), &established), 0);
    std::thread destroyer([this] { EXPECT_EQ(ibv_destroy_qp(target.release()), 0); });
    // The destruction removes the second event when it has taken the target out of service.
    EXPECT_TRUE(eventually([this] { return !is_readable(context->async_fd); }));
    // This request gets no response and no event.
    Request request(a, b, IBV_WR_RDMA_WRITE, 2, 64);
    request.wr.wr.rdma.rkey ^= 0x100;
    ASSERT_EQ(post_to(number(srq.get()), request), 0);
    EXPECT_EQ(poll(a.cq.get(), 1).at(0).status, IBV_WC_RETRY_EXC_ERR);
    ibv_ack_async_event(&established);
    destroyer.join();
    EXPECT_FALSE(is_readable(context->async_fd));
}

TEST_F(Xrc, unknownSharedReceiveQueueIsAnInvalidRequest) {
    start_xrc();
    ASSERT_EQ(post_to(0xabcdef, Request(a, b, IBV_WR_SEND, 1, 64)), 0);
    EXPECT_EQ(poll(a.cq.get(), 1).at(0).status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Xrc, extendedPostingNamesTheQueueToo) {
    start_xrc();
    receive_at(srq.get(), 10, 128);
    a.fill(std::byte{6});
    ibv_qp_ex* const extended = ibv_qp_to_qp_ex(initiator.get());
    ASSERT_NE(extended, nullptr);
    ibv_wr_start(extended);
    extended->wr_id = 1;
    extended->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(extended);
    ibv_wr_set_xrc_srqn(extended, number(srq.get()));
    ibv_wr_set_sge(extended, a.mr->lkey, a.address(), 64);
    ASSERT_EQ(ibv_wr_complete(extended), 0);
    EXPECT_EQ(poll(a.cq.get(), 1).at(0).status, IBV_WC_SUCCESS);
    EXPECT_EQ(poll(b.cq.get(), 1).at(0).wr_id, 10U);
    EXPECT_EQ(b.memory[191], std::byte{6});
}

TEST_F(Xrc, targetLivesAsLongAsAHandleOfIt) {
    timeout = 10;
    start_xrc();
    ibv_qp_open_attr attr{};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = target->qp_num;
    attr.xrcd = xrcd.get();
    attr.qp_type = IBV_QPT_XRC_RECV;
    UniqueQp second(ibv_open_qp(context.get(), &attr));
    ASSERT_NE(second, nullptr);
    EXPECT_NE(second.get(), target.get());
    EXPECT_EQ(second->qp_num, target->qp_num);
    target.reset();
    receive_at(srq.get(), 10, 0);
    ASSERT_EQ(post_to(number(srq.get()), Request(a, b, IBV_WR_SEND, 1, 64)), 0);
    EXPECT_EQ(poll(a.cq.get(), 1).at(0).status, IBV_WC_SUCCESS);
    EXPECT_EQ(poll(b.cq.get(), 1).at(0).wr_id, 10U);
    second.reset();
    ASSERT_EQ(post_to(number(srq.get()), Request(a, b, IBV_WR_SEND, 2, 64)), 0);
    EXPECT_EQ(poll(a.cq.get(), 1).at(0).status, IBV_WC_RETRY_EXC_ERR);
    errno = 0;
    EXPECT_EQ(ibv_open_qp(context.get(), &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(Xrc, neitherSideDoesWhatTheOtherDoes) {
    start_xrc();
    ibv_recv_wr receive{};
    ibv_recv_wr* bad_receive = nullptr;
    EXPECT_EQ(ibv_post_recv(initiator.get(), &receive, &bad_receive), EINVAL);
    EXPECT_EQ(ibv_post_recv(target.get(), &receive, &bad_receive), EINVAL);
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(target.get(), &send, &bad), EINVAL);
    EXPECT_EQ(ibv_close_xrcd(xrcd.get()), EBUSY);
    expected_violations = 1;
    std::uint32_t unused = 0;
    ibv_srq_init_attr basic{nullptr, {4, 1, 0}};
    const UniqueSrq plain(ibv_create_srq(pd.get(), &basic));
    EXPECT_EQ(ibv_get_srq_num(plain.get(), &unused), EINVAL);
}

TEST_F(Xrc, attributesOfTheOtherSideAreIgnored) {
    // A program may pass the mask of an RC queue pair to both sides: uverbs drops the attributes of
    // the other side, see modify_qp_mask() in the kernel.
    start_xrc();
    constexpr int place = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    constexpr int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    constexpr int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    constexpr int requester = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    constexpr int sending = IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
    for (ibv_qp* const qp : {initiator.get(), target.get()}) {
        const ibv_qp_attr attr = pair_attributes((qp == target.get() ? initiator : target)->qp_num);
        ASSERT_EQ(modify(qp, {}, IBV_QPS_RESET, 0), 0);
        ASSERT_EQ(modify(qp, attr, IBV_QPS_INIT, place), 0);
        ASSERT_EQ(modify(qp, attr, IBV_QPS_RTR, path | responder), 0);
        ASSERT_EQ(modify(qp, attr, IBV_QPS_RTS, sending | requester), 0);
        ibv_qp_attr kept{};
        ibv_qp_init_attr init{};
        ASSERT_EQ(ibv_query_qp(qp, &kept, responder | requester, &init), 0);
        EXPECT_EQ(kept.max_dest_rd_atomic, qp == target.get() ? 4 : 0);
        EXPECT_EQ(kept.max_rd_atomic, qp == target.get() ? 0 : 4);
    }
    receive_at(srq.get(), 1, 0);
    ASSERT_EQ(post_to(number(srq.get()), Request(a, b, IBV_WR_SEND, 2, 64)), 0);
    EXPECT_EQ(poll(a.cq.get(), 1).at(0).status, IBV_WC_SUCCESS);
    EXPECT_EQ(poll(b.cq.get(), 1).at(0).byte_len, 64U);
    // A value out of range is not checked either.
    ibv_qp_attr high{};
    high.max_rd_atomic = 255;
    ASSERT_EQ(modify(target.get(), {}, IBV_QPS_RESET, 0), 0);
    const ibv_qp_attr attr = pair_attributes(initiator->qp_num);
    ASSERT_EQ(modify(target.get(), attr, IBV_QPS_INIT, place), 0);
    ASSERT_EQ(modify(target.get(), attr, IBV_QPS_RTR, path | responder), 0);
    EXPECT_EQ(modify(target.get(), high, IBV_QPS_RTS, sending | requester), 0);
}

} // namespace
