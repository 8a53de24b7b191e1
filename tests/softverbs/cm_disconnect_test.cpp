// SPDX-License-Identifier: BSD-3-Clause
// RDMA_CM_EVENT_DISCONNECTED does not overtake messages that were sent before the disconnect.
#include <rdma/rdma_verbs.h>

#include <chrono>
#include <vector>

#include "cm_fixture.hpp"

namespace softverbs_test {
namespace {

using namespace std::chrono_literals;

/// One end of a connection, with a queue pair that librdmacm has created.
struct QueuePairEnd {
    Channel channel;
    UniqueId id;
    std::vector<std::byte> memory = std::vector<std::byte>(64);
    ibv_mr* mr = nullptr;

    QueuePairEnd() = default;
    QueuePairEnd(const QueuePairEnd&) = delete;
    QueuePairEnd& operator=(const QueuePairEnd&) = delete;
    ~QueuePairEnd() {
        rdma_destroy_qp(id.get());
        EXPECT_EQ(rdma_dereg_mr(mr), 0);
    }

    void create_queue_pair() {
        ibv_qp_init_attr init{};
        init.cap = {4, 4, 1, 1, 0};
        init.qp_type = IBV_QPT_RC;
        ASSERT_EQ(rdma_create_qp(id.get(), nullptr, &init), 0) << std::strerror(errno);
        mr = rdma_reg_msgs(id.get(), memory.data(), memory.size());
        ASSERT_NE(mr, nullptr);
    }
    [[nodiscard]] bool has_event() const { return is_readable(channel.fd()); }
};

class CmDisconnect : public testing::Test {
  protected:
    void SetUp() override {
        const UniqueId listener = server_.channel.listen();
        client_.id = client_.channel.route(ntohs(rdma_get_src_port(listener.get())));
        client_.create_queue_pair();
        rdma_conn_param wanted = parameters();
        ASSERT_EQ(rdma_connect(client_.id.get(), &wanted), 0);
        const SeenEvent request = server_.channel.next();
        ASSERT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
        server_.id.reset(request.id);
        server_.create_queue_pair();
        ASSERT_EQ(rdma_post_recv(server_.id.get(), nullptr, server_.memory.data(), 64, server_.mr),
                  0);
        rdma_conn_param reply = parameters();
        ASSERT_EQ(rdma_accept(server_.id.get(), &reply), 0);
        ASSERT_EQ(client_.channel.next().type, RDMA_CM_EVENT_ESTABLISHED);
        ASSERT_EQ(server_.channel.next().type, RDMA_CM_EVENT_ESTABLISHED);
        ASSERT_EQ(rdma_post_send(client_.id.get(), nullptr, client_.memory.data(), 64, client_.mr,
                                 IBV_SEND_SIGNALED),
                  0);
        ibv_wc wc{};
        ASSERT_EQ(rdma_get_send_comp(client_.id.get(), &wc), 1);
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        ASSERT_EQ(rdma_disconnect(client_.id.get()), 0);
    }

    ManualClock clock_;
    QueuePairEnd server_;
    QueuePairEnd client_;
};

TEST_F(CmDisconnect, IsReportedAfterTheProgramHasPolledTheMessageBeforeIt) {
    ManualClock::advance(150ms);
    EXPECT_FALSE(server_.has_event());
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(server_.id->recv_cq, 1, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    ManualClock::advance(1ms);
    ASSERT_TRUE(server_.has_event());
    EXPECT_EQ(server_.channel.next().type, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(CmDisconnect, IsReportedToAProgramThatDoesNotPoll) {
    ManualClock::advance(200ms - 1ns);
    EXPECT_FALSE(server_.has_event());
    ManualClock::advance(1ns);
    ASSERT_TRUE(server_.has_event());
    EXPECT_EQ(server_.channel.next().type, RDMA_CM_EVENT_DISCONNECTED);
    ASSERT_EQ(rdma_disconnect(server_.id.get()), 0);
    EXPECT_EQ(client_.channel.next().type, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(CmDisconnect, IsReportedOnceIfTheProgramDisconnectsToo) {
    ManualClock::advance(20ms);
    EXPECT_FALSE(server_.has_event());
    ASSERT_EQ(rdma_disconnect(server_.id.get()), 0);
    EXPECT_EQ(server_.channel.next().type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(server_.channel.next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    ManualClock::advance(1h);
    EXPECT_FALSE(server_.has_event());
}

} // namespace
} // namespace softverbs_test
