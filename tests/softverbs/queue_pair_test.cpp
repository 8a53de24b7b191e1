// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <atomic>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "verbs_test.hpp"

namespace {

using namespace softverbs_test;

class QueuePair : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        cq = make_cq(100);
    }
    /// Returns the errno with which the creation of a queue pair fails, or 0.
    int error_of(ibv_qp_init_attr_ex init) {
        ibv_qp* qp = ibv_create_qp_ex(context.get(), &init);
        const int error = errno;
        if (qp != nullptr) {
            EXPECT_EQ(ibv_destroy_qp(qp), 0);
            return 0;
        }
        return error;
    }
    /// Like error_of(), for valid attributes that @p spoil has changed.
    template <class Spoil>
    int error_with(ibv_qp_type type, Spoil spoil) {
        ibv_qp_init_attr_ex init = qp_attributes(type, cq.get());
        spoil(init);
        return error_of(init);
    }

    UniqueCq cq;
};

TEST_F(QueuePair, isMadeWithinTheDevicesLimits) {
    const auto with = [this](auto spoil) { return error_with(IBV_QPT_RC, spoil); };
    const auto most_wr = static_cast<std::uint32_t>(attributes().max_qp_wr);
    EXPECT_EQ(with([&](auto& init) { init.cap.max_send_wr = init.cap.max_recv_wr = most_wr; }), 0);
    EXPECT_EQ(with([&](auto& init) { init.cap.max_send_wr = most_wr + 1; }), EINVAL);
    EXPECT_EQ(with([&](auto& init) { init.cap.max_recv_wr = most_wr + 1; }), EINVAL);
    EXPECT_EQ(with([](auto& init) { init.cap.max_send_sge = init.cap.max_recv_sge = 16; }), 0);
    EXPECT_EQ(with([](auto& init) { init.cap.max_send_sge = 17; }), EINVAL);
    EXPECT_EQ(with([](auto& init) { init.cap.max_recv_sge = 17; }), EINVAL);
    EXPECT_EQ(with([](auto& init) { init.cap.max_inline_data = 1024; }), 0);
    EXPECT_EQ(with([](auto& init) { init.cap.max_inline_data = 1025; }), EINVAL);
    EXPECT_EQ(with([](auto& init) { init.cap = {}; }), 0);
}

TEST_F(QueuePair, isOfTheTypesThatTheDeviceHas) {
    const auto nothing = [](auto&) {};
    EXPECT_EQ(error_with(IBV_QPT_RC, nothing), 0);
    EXPECT_EQ(error_with(IBV_QPT_UC, nothing), 0);
    EXPECT_EQ(error_with(IBV_QPT_UD, nothing), 0);
    EXPECT_EQ(error_with(IBV_QPT_RAW_PACKET, nothing), EOPNOTSUPP);
    EXPECT_EQ(error_with(IBV_QPT_XRC_SEND, nothing), 0);
    EXPECT_EQ(error_with(IBV_QPT_XRC_RECV, nothing), EINVAL); // without a domain
    EXPECT_EQ(error_with(IBV_QPT_DRIVER, nothing), EOPNOTSUPP);
}

TEST_F(QueuePair, needsItsParents) {
    const auto with = [this](auto spoil) { return error_with(IBV_QPT_RC, spoil); };
    EXPECT_EQ(with([](auto& init) { init.send_cq = nullptr; }), EINVAL);
    EXPECT_EQ(with([](auto& init) { init.recv_cq = nullptr; }), EINVAL);
    EXPECT_EQ(with([](auto& init) {
                  init.pd = nullptr;
                  init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS; // not by way of ibv_create_qp()
              }),
              EINVAL);
    EXPECT_EQ(with([](auto& init) { init.comp_mask = 0; }), EINVAL);
    const UniqueCq other = make_cq(1);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, cq.get());
    init.recv_cq = other.get();
    const UniqueQp qp = make_qp(init);
    EXPECT_EQ(ibv_destroy_cq(cq.get()), EBUSY);
    EXPECT_EQ(ibv_destroy_cq(other.get()), EBUSY);
    EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
    expected_violations = 3;
}

TEST_F(QueuePair, hasNoOtherExtensionsThanItsSendOperations) {
    const auto with = [this](auto spoil) { return error_with(IBV_QPT_RC, spoil); };
    EXPECT_EQ(with([](auto& init) { init.comp_mask |= 1U << 30; }), EINVAL);
    EXPECT_EQ(with([](auto& init) { init.comp_mask |= IBV_QP_INIT_ATTR_XRCD; }), EOPNOTSUPP);
    EXPECT_EQ(with([](auto& init) { init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS; }), 0);
    EXPECT_EQ(with([](auto& init) {
                  init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
                  init.create_flags = IBV_QP_CREATE_SCATTER_FCS;
              }),
              EOPNOTSUPP);
}

TEST_F(QueuePair, offersTheSendOperationsOfItsType) {
    const auto with = [this](ibv_qp_type type, std::uint64_t ops) {
        return error_with(type, [ops](auto& init) {
            init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            init.send_ops_flags = ops;
        });
    };
    constexpr std::uint64_t all = (1U << 10) - 1;
    EXPECT_EQ(with(IBV_QPT_RC, all), 0);
    EXPECT_EQ(with(IBV_QPT_RC, IBV_QP_EX_WITH_TSO), EOPNOTSUPP);
    EXPECT_EQ(with(IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE), 0);
    EXPECT_EQ(with(IBV_QPT_UC, IBV_QP_EX_WITH_ATOMIC_WRITE), EOPNOTSUPP);
    EXPECT_EQ(with(IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV),
              0);
    EXPECT_EQ(with(IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ), EOPNOTSUPP);
    EXPECT_EQ(with(IBV_QPT_UC, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP), EOPNOTSUPP);
    EXPECT_EQ(with(IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM), 0);
    EXPECT_EQ(with(IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE), EOPNOTSUPP);
}

TEST_F(QueuePair, hasANumberOfItsOwnThatIsNotReusedSoon) {
    std::set<std::uint32_t> numbers;
    for (int i = 0; i < 1000; ++i) {
        const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
        EXPECT_LT(qp->qp_num, 1U << 24);
        EXPECT_GT(qp->qp_num, 0U);
        EXPECT_TRUE(numbers.insert(qp->qp_num).second) << "used twice: " << qp->qp_num;
    }
}

std::size_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    std::size_t total = 0;
    std::size_t resident = 0;
    statm >> total >> resident;
    return resident * 4096;
}

TEST_F(QueuePair, costsLittleUntilItIsUsed) {
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, cq.get());
    init.cap.max_send_wr = init.cap.max_recv_wr = 128;
    init.cap.max_inline_data = 1024;
    std::vector<UniqueQp> qps;
    qps.reserve(10'000);
    const std::size_t before = resident_bytes();
    while (qps.size() < 10'000) {
        qps.push_back(make_qp(init));
        ASSERT_NE(qps.back(), nullptr);
    }
    EXPECT_LT(resident_bytes() - before, 200'000'000U);
}

TEST_F(QueuePair, numbersRunOut) {
    std::vector<UniqueQp> qps;
    const auto init = [this] {
        ibv_qp_init_attr_ex result = qp_attributes(IBV_QPT_RC, cq.get());
        result.cap = {};
        return result;
    };
    int error = 0;
    while (qps.size() <= 1U << 14) {
        ibv_qp_init_attr_ex attr = init();
        UniqueQp qp(ibv_create_qp_ex(context.get(), &attr));
        if (qp == nullptr) {
            error = errno;
            break;
        }
        // The InfiniBand specification reserves these numbers for management and multicast.
        ASSERT_NE(qp->qp_num, 0U);
        ASSERT_NE(qp->qp_num, 1U);
        ASSERT_NE(qp->qp_num, 0xffffffU);
        qps.push_back(std::move(qp));
    }
    EXPECT_EQ(error, ENOMEM);
    EXPECT_EQ(qps.size(), static_cast<std::size_t>(attributes().max_qp));
    EXPECT_GE(qps.size(), 10'000U);
    qps.pop_back();
    EXPECT_EQ(error_of(init()), 0);
}

TEST_F(QueuePair, isDestroyedOnceItsEventsAreAcknowledged) {
    UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    ibv_async_event fatal{};
    fatal.element.qp = qp.get();
    fatal.event_type = IBV_EVENT_QP_FATAL;
    ASSERT_EQ(softverbs_raise_event(context.get(), &fatal), 0);
    ASSERT_EQ(softverbs_raise_event(context.get(), &fatal), 0);
    ibv_async_event taken{};
    ASSERT_EQ(ibv_get_async_event(context.get(), &taken), 0);
    EXPECT_EQ(softverbs_unacknowledged_events(), 1U);
    std::atomic<bool> destroyed = false;
    std::atomic<pid_t> destroyer_id = 0;
    std::jthread destroyer([&] {
        destroyer_id = ::gettid();
        qp.reset();
        destroyed = true;
    });
    EXPECT_TRUE(eventually([&] { return destroyed || is_asleep(destroyer_id); }));
    ASSERT_FALSE(destroyed);
    ibv_ack_async_event(&taken);
    destroyer.join();
    EXPECT_FALSE(is_readable(context->async_fd)) << "the other event went with it";
}

TEST_F(QueuePair, leavesNoCompletionsBehind) {
    const UniqueCq receives = make_cq(100);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, cq.get());
    init.recv_cq = receives.get();
    UniqueQp qp = make_qp(init);
    const UniqueQp other = make_qp(init);
    to_error(qp.get());
    to_error(other.get());
    for (ibv_qp* each : {qp.get(), other.get(), qp.get()}) {
        ibv_recv_wr receive{};
        receive.wr_id = each->qp_num;
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_recv(each, &receive, &bad), 0);
        ibv_send_wr send{};
        send.wr_id = each->qp_num;
        ibv_send_wr* bad_send = nullptr;
        ASSERT_EQ(ibv_post_send(each, &send, &bad_send), 0);
    }
    qp.reset();
    for (ibv_cq* each : {cq.get(), receives.get()}) {
        const auto left = poll(each, 1);
        ASSERT_EQ(left.size(), 1U);
        EXPECT_EQ(left[0].wr_id, other->qp_num);
        EXPECT_TRUE(is_empty(each));
    }
}

TEST_F(QueuePair, resetForgetsWhatWasPostedAndCompleted) {
    const UniqueCq other = make_cq(100);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, cq.get());
    init.recv_cq = other.get();
    const UniqueQp qp = make_qp(init);
    to_init(qp.get());
    ibv_recv_wr receive{};
    ibv_recv_wr* bad = nullptr;
    for (int i = 0; i < 16; ++i) {
        ASSERT_EQ(ibv_post_recv(qp.get(), &receive, &bad), 0);
    }
    EXPECT_EQ(ibv_post_recv(qp.get(), &receive, &bad), ENOMEM);
    ASSERT_EQ(modify(qp.get(), {}, IBV_QPS_RESET, 0), 0);
    EXPECT_TRUE(is_empty(other.get()));
    to_error(qp.get());
    EXPECT_TRUE(is_empty(other.get())) << "there is nothing left to be flushed";
    ibv_send_wr send{};
    ibv_send_wr* bad_send = nullptr;
    ASSERT_EQ(ibv_post_send(qp.get(), &send, &bad_send), 0);
    ASSERT_EQ(ibv_post_recv(qp.get(), &receive, &bad), 0);
    ASSERT_EQ(modify(qp.get(), {}, IBV_QPS_RESET, 0), 0);
    EXPECT_TRUE(is_empty(other.get())) << "flushed, but the queue pair started anew";
    EXPECT_TRUE(is_empty(cq.get()));
}

} // namespace
