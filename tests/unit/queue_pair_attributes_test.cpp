// SPDX-License-Identifier: BSD-3-Clause
// Attributes of the path, and of queue pairs that exist: queries, changes, rate limits and ECE.
#include <rdmabuf/queue_pair.hpp>

#include "queue_pair_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::connect_to_itself;
using testing::error_of;
using testing::fails_with;
using testing::modify;

using Attributes = testing::QueuePairTest;

TEST_F(Attributes, AreQueriedAndChangedAfterConnecting) {
    QueuePairOptions wanted = options();
    wanted.min_rnr_timer = 9;
    wanted.timeout = 15;
    QueuePair qp = connect_to_itself(prepare(wanted));
    EXPECT_EQ(qp.attributes().qp_state, IBV_QPS_RTS);
    EXPECT_EQ(qp.attributes().min_rnr_timer, 9);
    EXPECT_EQ(qp.attributes().timeout, 15);
    EXPECT_EQ(qp.attributes().dest_qp_num, qp.number());

    ibv_qp_attr change{};
    change.min_rnr_timer = 20;
    qp.modify(change, IBV_QP_MIN_RNR_TIMER);
    EXPECT_EQ(qp.attributes().min_rnr_timer, 20);

    change.timeout = 1;
    EXPECT_THAT(error_of([&] { qp.modify(change, IBV_QP_TIMEOUT); }),
                fails_with(modify, EINVAL, ""));
    EXPECT_EQ(qp.attributes().timeout, 15);
    EXPECT_EQ(qp.attributes(IBV_QP_CAP).cap.max_send_wr, wanted.max_send_wr);
}

TEST_F(Attributes, IncludeWhatTheDeviceHasGranted) {
    QueuePairOptions wanted = options();
    wanted.max_send_wr = 3;
    wanted.max_inline_data = 17;
    for (const ExtendedInterface extended : {ExtendedInterface::off, ExtendedInterface::required}) {
        wanted.extended = extended;
        const PreparedQueuePair prepared = prepare(wanted);
        const ibv_qp_cap& granted = prepared.capacities();
        ibv_qp_attr queried{};
        ibv_qp_init_attr init{};
        ASSERT_EQ(ibv_query_qp(prepared.native(), &queried, IBV_QP_CAP, &init), 0);
        EXPECT_GE(granted.max_send_wr, 3U);
        EXPECT_EQ(granted.max_send_wr, queried.cap.max_send_wr);
        EXPECT_EQ(granted.max_recv_wr, queried.cap.max_recv_wr);
        EXPECT_EQ(granted.max_inline_data, queried.cap.max_inline_data);
    }
}

TEST_F(Attributes, SayThatSoftverbsWritesInNoOrder) {
    QueuePair qp = connect_to_itself(prepare(options()));
    EXPECT_FALSE(qp.is_data_in_order(IBV_WR_RDMA_WRITE));
    qp.close();
    EXPECT_THAT(error_of([&] { (void)qp.is_data_in_order(IBV_WR_RDMA_WRITE); }),
                fails_with("ibv_query_qp_data_in_order", EBADF, "closed"));
}

/// A device with rate limits for RC queue pairs.
void use_rate_limits() {
    testing::change_device([](ibv_device_attr_ex& attributes) {
        attributes.packet_pacing_caps.qp_rate_limit_min = 1000;
        attributes.packet_pacing_caps.qp_rate_limit_max = 1000000;
        attributes.packet_pacing_caps.supported_qpts = 1U << IBV_QPT_RC;
    });
}

TEST_F(Attributes, IncludeARateLimit) {
    use([] { use_rate_limits(); });
    QueuePair qp = connect_to_itself(prepare(options()));
    qp.set_rate_limit({.kilobits_per_second = 5000, .max_burst_size = 4096});
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(qp.native(), &attributes, IBV_QP_RATE_LIMIT, &init), 0);
    EXPECT_EQ(attributes.rate_limit, 5000U);
    qp.set_rate_limit({});
    ASSERT_EQ(ibv_query_qp(qp.native(), &attributes, IBV_QP_RATE_LIMIT, &init), 0);
    EXPECT_EQ(attributes.rate_limit, 0U);
}

TEST_F(Attributes, RefuseARateLimitWithTheLimitsOfTheDevice) {
    use([] { use_rate_limits(); });
    QueuePair qp = connect_to_itself(prepare(options()));
    EXPECT_THAT(error_of([&] { qp.set_rate_limit({.kilobits_per_second = 999}); }),
                fails_with("ibv_modify_qp_rate_limit", EINVAL,
                           "999 kbit/s; the device has rates from 1000 to 1000000 kbit/s"));
    QueuePair unreliable = connect_to_itself(prepare(options(QueuePairType::unreliable_connected)));
    EXPECT_THAT(
        error_of([&] { unreliable.set_rate_limit({.kilobits_per_second = 1000}); }),
        fails_with("ibv_modify_qp_rate_limit", EINVAL, "but not for queue pairs of this type"));
}

TEST_F(Attributes, RefuseARateLimitWhereTheProviderHasNone) {
    use([] {
        testing::change_device(
            [](ibv_device_attr_ex& attributes) { attributes.packet_pacing_caps = {}; });
    });
    QueuePair qp = connect_to_itself(prepare(options()));
    EXPECT_THAT(error_of([&] { qp.set_rate_limit({.kilobits_per_second = 5000}); }),
                fails_with("ibv_modify_qp_rate_limit", EOPNOTSUPP, "has no rate limits"));
}

TEST_F(Attributes, IncludeEceOptionsThatBothSidesAccept) {
    use([] { EXPECT_EQ(softverbs_reset("mlx5", 1), 0); });
    constexpr std::uint32_t mellanox = 0x15b3;
    PreparedQueuePair first = prepare(options());
    PreparedQueuePair second = prepare(options());
    ibv_ece offered = first.ece();
    EXPECT_EQ(offered.vendor_id, mellanox);
    EXPECT_NE(offered.options & 1U, 0U);
    offered.options = 1U | 1U << 20U; // the device does not know the second
    const QueuePairAddress first_address = first.address();
    const QueuePairAddress second_address = second.address();
    second.set_ece(offered);
    const QueuePair responder = std::move(second).connect(first_address);
    const ibv_ece accepted = responder.ece();
    EXPECT_EQ(accepted.vendor_id, mellanox);
    EXPECT_EQ(accepted.options, 1U);
    first.set_ece(accepted);
    EXPECT_EQ(std::move(first).connect(second_address).ece().options, 1U);
}

TEST_F(Attributes, RefuseEceOptionsOfAnotherVendor) {
    use([] { EXPECT_EQ(softverbs_reset("mlx5", 1), 0); });
    PreparedQueuePair prepared = prepare(options());
    EXPECT_THAT(error_of([&] { prepared.set_ece({.vendor_id = 9, .options = 1, .comp_mask = 0}); }),
                fails_with("ibv_set_ece", EINVAL, "vendor 9 of the options"));
}

TEST_F(Attributes, RefuseEceWhereTheProviderHasNone) {
    PreparedQueuePair prepared = prepare(options());
    EXPECT_THAT(error_of([&] { static_cast<void>(prepared.ece()); }),
                fails_with("ibv_query_ece", EOPNOTSUPP, "only mlx5 devices have ECE"));
    EXPECT_THAT(
        error_of([&] { prepared.set_ece({.vendor_id = 0x15b3, .options = 1, .comp_mask = 0}); }),
        fails_with("ibv_set_ece", EOPNOTSUPP, "only mlx5 devices have ECE"));
}

TEST_F(Attributes, OfEfaAreQueriedWithTheMaskThatItSupports) {
    use([] { EXPECT_EQ(softverbs_reset("efa", 1), 0); });
    const QueuePair qp = prepare(QueuePairType::unreliable_datagram).activate();
    EXPECT_THAT(error_of([&] { static_cast<void>(qp.attributes()); }),
                fails_with("ibv_query_qp", EOPNOTSUPP, ""));
    EXPECT_EQ(qp.attributes(IBV_QP_STATE | IBV_QP_QKEY).qp_state, IBV_QPS_RTS);
}

} // namespace
} // namespace rdmabuf
