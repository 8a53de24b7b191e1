// SPDX-License-Identifier: BSD-3-Clause
// XRC: domains, their shared receive queues, and the two ends of a connection.
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>

#include <rdmabuf/shared_receive_queue.hpp>
#include <rdmabuf/xrc_domain.hpp>

#include "posting_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::error_of;
using testing::fails_with;
using testing::PostingTest;

class XrcTest : public PostingTest {
  protected:
    [[nodiscard]] SharedReceiveQueue make_srq(const XrcDomain& domain) const {
        return SharedReceiveQueue(basics_.pd, {.xrc_domain = &domain, .cq = &recv_cq_});
    }
    [[nodiscard]] QueuePairOptions of(QueuePairType type) const {
        QueuePairOptions wanted = options();
        wanted.type = type;
        return wanted;
    }
    /// Connects sender_ with a receiving end in @p domain.
    void connect_xrc(const XrcDomain& domain) {
        QueuePairOptions receiving = of(QueuePairType::xrc_receive);
        receiving.xrc_domain = &domain;
        PreparedQueuePair target_end = QueuePair::prepare(basics_.pd, receiving);
        PreparedQueuePair sending_end = QueuePair::prepare(basics_.pd, of(QueuePairType::xrc_send));
        const QueuePairAddress address = target_end.address();
        receiver_.emplace(std::move(target_end).connect(sending_end.address()));
        sender_.emplace(std::move(sending_end).connect(address));
    }

    std::optional<QueuePair> receiver_;
    std::optional<QueuePair> sender_;
};

TEST_F(XrcTest, EachRequestNamesTheSharedReceiveQueueThatTakesTheMessage) {
    const XrcDomain domain(basics_.context);
    const SharedReceiveQueue first = make_srq(domain);
    const SharedReceiveQueue second = make_srq(domain);
    ASSERT_NE(first.number(), second.number());
    connect_xrc(domain);
    ASSERT_TRUE(first.post_recv(region_.sge(arrivals, 100), 11));
    ASSERT_TRUE(second.post_recv(region_.sge(arrivals + 200, 100), 22));

    const WorkOptions signaled_1{.wr_id = 1, .flags = SendFlags::signaled};
    ASSERT_TRUE(sender_->post_to_srq(make_send({local_.data(), 1}, signaled_1), second.number()));
    EXPECT_EQ(completed(basics_.cq, 1, IBV_WC_SEND).status, IBV_WC_SUCCESS);
    const WorkCompletion received = completed(recv_cq_, 22, IBV_WC_RECV);
    EXPECT_EQ(received.byte_len, 100U);
    EXPECT_EQ(bytes(arrivals + 200, 100), bytes(0, 100));

    ASSERT_TRUE(sender_->post_to_srq(
        make_write_imm({local_.data(), 1}, remote_, testing::immediate, signaled_1),
        first.number()));
    const WorkCompletion written = completed(recv_cq_, 11, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(be32toh(written.imm_data), testing::immediate);
    EXPECT_EQ(bytes(target, 100), bytes(0, 100));
    completed(basics_.cq, 1, IBV_WC_RDMA_WRITE);
}

TEST_F(XrcTest, SharedReceiveQueueAndQueuePairKeepTheirDomainAlive) {
    std::optional<XrcDomain> domain(basics_.context);
    std::optional<SharedReceiveQueue> srq(make_srq(*domain));
    connect_xrc(*domain);
    EXPECT_THAT(error_of([&] { domain->close(); }), fails_with(EBUSY, "ibv_close_xrcd"));
    domain.reset();
    EXPECT_EQ(softverbs_live(SOFTVERBS_XRCD), 1U);
    srq.reset();
    EXPECT_EQ(softverbs_live(SOFTVERBS_XRCD), 1U);
    receiver_.reset();
    EXPECT_EQ(softverbs_live(SOFTVERBS_XRCD), 0U);
}

TEST_F(XrcTest, QueuePairsCanBeBorrowed) {
    const XrcDomain domain(basics_.context);
    const SharedReceiveQueue srq = make_srq(domain);
    connect_xrc(domain);
    const QueuePair receiver = QueuePair::borrow(receiver_->native());
    EXPECT_EQ(receiver.state(), IBV_QPS_RTS);
    // The receiving end has neither a protection domain nor completion queues.
    EXPECT_EQ(receiver.protection_domain().native(), nullptr);
    EXPECT_THAT(error_of([&] { (void)receiver.protection_domain().context(); }),
                fails_with(EBADF, "ProtectionDomain::context"));
    const QueuePair sender = QueuePair::borrow(sender_->native());
    EXPECT_EQ(sender.protection_domain(), basics_.pd);
    ASSERT_TRUE(srq.post_recv(region_.sge(arrivals, 100), 1));
    ASSERT_TRUE(sender.post_to_srq(make_send({local_.data(), 1}), srq.number()));
    EXPECT_EQ(completed(recv_cq_, 1, IBV_WC_RECV).byte_len, 100U);
}

TEST_F(XrcTest, AQueuePairThatWasOpenedOutlivesItsCreator) {
    const XrcDomain domain(basics_.context);
    const SharedReceiveQueue srq = make_srq(domain);
    connect_xrc(domain);
    std::optional<QueuePair> opened(QueuePair::open(domain, receiver_->number()));
    EXPECT_EQ(opened->number(), receiver_->number());
    EXPECT_EQ(opened->type(), QueuePairType::xrc_receive);
    receiver_.reset();
    EXPECT_EQ(opened->state(), IBV_QPS_RTS);
    ASSERT_TRUE(srq.post_recv(region_.sge(arrivals, 100), 1));
    ASSERT_TRUE(sender_->post_to_srq(make_send({local_.data(), 1}), srq.number()));
    EXPECT_EQ(completed(recv_cq_, 1, IBV_WC_RECV).byte_len, 100U);

    const std::uint32_t number = opened->number();
    opened.reset();
    EXPECT_THAT(error_of([&] { static_cast<void>(QueuePair::open(domain, number)); }),
                fails_with("ibv_open_qp", EINVAL, "number " + std::to_string(number)));
    EXPECT_THAT(
        error_of([&] { static_cast<void>(QueuePair::open(XrcDomain::borrow(nullptr), number)); }),
        fails_with(EBADF, "XrcDomain"));
}

TEST_F(XrcTest, DomainAndCompletionQueueOfASharedReceiveQueueNeedEachOther) {
    const XrcDomain domain(basics_.context);
    EXPECT_THAT(
        error_of([&] { const SharedReceiveQueue srq(basics_.pd, {.xrc_domain = &domain}); }),
        fails_with(EINVAL, "has either an XRC domain or tags"));
    EXPECT_THAT(error_of([&] { const SharedReceiveQueue srq(basics_.pd, {.cq = &recv_cq_}); }),
                fails_with(EINVAL, "has either an XRC domain or tags"));
    EXPECT_THAT(
        error_of([&] {
            const SharedReceiveQueue srq(
                basics_.pd,
                {.xrc_domain = &domain, .max_tags = 1, .max_tag_operations = 1, .cq = &recv_cq_});
        }),
        fails_with(EINVAL, "has either an XRC domain or tags"));
}

TEST_F(XrcTest, OnlyTheReceivingEndHasADomain) {
    const XrcDomain domain(basics_.context);
    EXPECT_THAT(
        error_of([&] {
            static_cast<void>(QueuePair::prepare(basics_.pd, of(QueuePairType::xrc_receive)));
        }),
        fails_with(EINVAL, "xrc_domain"));
    QueuePairOptions sending = of(QueuePairType::xrc_send);
    sending.xrc_domain = &domain;
    EXPECT_THAT(error_of([&] { static_cast<void>(QueuePair::prepare(basics_.pd, sending)); }),
                fails_with(EINVAL, "xrc_domain"));
}

TEST_F(XrcTest, SendingEndConnectsOnlyToAReceivingEnd) {
    PreparedQueuePair one = QueuePair::prepare(basics_.pd, of(QueuePairType::xrc_send));
    const PreparedQueuePair other = QueuePair::prepare(basics_.pd, of(QueuePairType::xrc_send));
    EXPECT_THAT(error_of([&] { static_cast<void>(std::move(one).connect(other.address())); }),
                fails_with(EPROTO, "XRC_SEND"));
}

TEST_F(XrcTest, DescriptorThatIsNotOpenIsRefused) {
    EXPECT_THAT(error_of([&] { const XrcDomain domain(basics_.context, 1 << 20); }),
                fails_with(EBADF, "descriptor 1048576 is not open"));
}

} // namespace
} // namespace rdmabuf
