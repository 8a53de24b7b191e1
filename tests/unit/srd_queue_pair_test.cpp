// SPDX-License-Identifier: BSD-3-Clause
// The properties of EFA devices, and the creation and the states of SRD queue pairs.
#include <string>

#include "fails_with.hpp"
#include "srd_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::caps_rdma_write;
using testing::efadv_calls;
using testing::error_of;
using testing::fails_with;
using ::testing::HasSubstr;
using testing::record;
using testing::Srd;
using testing::srd;
using testing::srd_access;

constexpr const char* create = "efadv_create_qp_ex";
constexpr const char* query = "efadv_query_device";
constexpr const char* modify = "ibv_modify_qp";

// What the device supports

TEST_F(Srd, DeviceReportsItsLimitsAndCapabilities) {
    const Availability available = context_->srd();
    EXPECT_TRUE(available);
    EXPECT_EQ(available.reason, "messages, and RDMA reads and writes of at most 1073741824 bytes");
    const SrdAttributes device = context_->srd_attributes();
    EXPECT_TRUE(device.rdma_read);
    EXPECT_TRUE(device.rdma_write);
    EXPECT_TRUE(device.rnr_retry);
    EXPECT_TRUE(device.sender_gid);
    EXPECT_EQ(device.max_rdma_size, 1U << 30U);
    EXPECT_EQ(device.max_send_wr, 4096U);
    EXPECT_EQ(device.max_recv_wr, 32768U);
    EXPECT_EQ(device.max_send_sge, 2U);
    EXPECT_EQ(device.max_recv_sge, 3U);
    EXPECT_EQ(device.max_inline_data, 32U);
    EXPECT_EQ(context_->max_message_size(), 8928U);
}

TEST_F(Srd, DeviceReportsWhichRdmaItLacks) {
    efadv_calls.removed_caps = caps_rdma_write;
    EXPECT_EQ(context_->srd().reason, "messages, and RDMA reads of at most 1073741824 bytes");
    EXPECT_FALSE(context_->srd_attributes().rdma_write);
    efadv_calls.removed_caps |= EFADV_DEVICE_ATTR_CAPS_RDMA_READ |
                                EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID |
                                EFADV_DEVICE_ATTR_CAPS_RNR_RETRY;
    EXPECT_EQ(context_->srd().reason, "messages only, no RDMA");
    const SrdAttributes device = context_->srd_attributes();
    EXPECT_FALSE(device.rdma_read);
    EXPECT_FALSE(device.rnr_retry);
    EXPECT_FALSE(device.sender_gid);
    efadv_calls.removed_caps = EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
    EXPECT_THAT(context_->srd().reason, HasSubstr("and RDMA writes of"));
}

TEST_F(Srd, DeviceOfAnotherDriverHasNone) {
    use_default_device();
    const Availability available = context_->srd();
    EXPECT_FALSE(available);
    EXPECT_EQ(available.reason, "soft0 is not an EFA device");
    EXPECT_EQ(available.remedy, "use QueuePairType::reliable_connected");
    const auto refused = fails_with(query, EOPNOTSUPP,
                                    "soft0 is not an EFA device; use "
                                    "QueuePairType::reliable_connected");
    EXPECT_THAT(error_of([&] { static_cast<void>(context_->srd_attributes()); }), refused);
    EXPECT_THAT(refusal(options()), refused);
    EXPECT_TRUE(efadv_calls.created.empty());
}

TEST_F(Srd, FailedQueryIsReportedWithItsErrno) {
    efadv_calls.query_error = ENOMEM;
    EXPECT_THAT(context_->srd().reason, HasSubstr("efadv_query_device on soft0 failed"));
    EXPECT_THAT(context_->srd().reason, HasSubstr("ENOMEM"));
    EXPECT_THAT(refusal(options()), fails_with(query, ENOMEM, "on soft0 failed"));
}

// Creation and states

TEST_F(Srd, QueuePairIsCreatedWithTheOperationsOfTheDevice) {
    constexpr std::uint64_t send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    constexpr std::uint64_t write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    const PreparedQueuePair all = QueuePair::prepare(a_->pd, options());
    ASSERT_EQ(efadv_calls.created.size(), 1U);
    EXPECT_EQ(efadv_calls.created[0].qp_type, IBV_QPT_DRIVER);
    EXPECT_EQ(efadv_calls.created[0].cap.max_inline_data, 32U);
    EXPECT_EQ(efadv_calls.created[0].send_ops_flags, send | write | IBV_QP_EX_WITH_RDMA_READ);
    EXPECT_EQ(efadv_calls.created_extra[0].driver_qp_type, std::uint32_t{EFADV_QP_DRIVER_TYPE_SRD});
    EXPECT_EQ(efadv_calls.created_extra[0].comp_mask, 0U);
    efadv_calls.removed_caps = caps_rdma_write;
    const PreparedQueuePair reads = QueuePair::prepare(a_->pd, options());
    EXPECT_EQ(efadv_calls.created[1].send_ops_flags, send | IBV_QP_EX_WITH_RDMA_READ);
    efadv_calls.removed_caps = EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
    const PreparedQueuePair writes = QueuePair::prepare(a_->pd, options());
    EXPECT_EQ(efadv_calls.created[2].send_ops_flags, send | write);
    EXPECT_TRUE(record().qps.empty()) << "not by ibv_create_qp";
}

TEST_F(Srd, QueuePairIsActivatedWithoutAPeer) {
    QueuePairOptions wanted = options();
    wanted.qkey = 0x456;
    PreparedQueuePair prepared = QueuePair::prepare(a_->pd, wanted);
    const QueuePair qp = std::move(prepared).activate();
    EXPECT_EQ(qp.type(), srd);
    EXPECT_EQ(qp.state(), IBV_QPS_RTS);
    EXPECT_TRUE(qp.extended());
    const auto& changes = record().modifications;
    ASSERT_EQ(changes.size(), 3U);
    EXPECT_EQ(changes[0].mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    EXPECT_EQ(changes[0].attributes.qkey, 0x456U);
    EXPECT_EQ(changes[1].mask, int{IBV_QP_STATE});
    EXPECT_EQ(changes[2].mask, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

TEST_F(Srd, RnrRetriesAreSetIfTheyAreLimited) {
    QueuePairOptions wanted = options();
    wanted.rnr_retry = 2;
    start(wanted);
    const auto& change = record().modifications.at(2);
    EXPECT_EQ(change.mask, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY);
    EXPECT_EQ(change.attributes.rnr_retry, 2);
}

TEST_F(Srd, AddressHasWhatAPeerNeeds) {
    start();
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(context_->native(), 1, 0, &gid), 0);
    const QueuePairAddress sent = b_->address;
    EXPECT_EQ(sent.type, srd);
    EXPECT_EQ(sent.number, b_->qp->number());
    EXPECT_EQ(sent.qkey, 0x11111111U);
    EXPECT_EQ(sent.gid, Gid::from_native(gid));
    EXPECT_EQ(QueuePairAddress::decode(sent.encode()).value(), sent);
    const Destination to = to_b_->destination(sent);
    EXPECT_EQ(to.ah, to_b_->native());
    EXPECT_EQ(to.queue_pair, sent.number);
    EXPECT_EQ(to.qkey, sent.qkey);
}

TEST_F(Srd, ConnectingIsRefused) {
    PreparedQueuePair prepared = QueuePair::prepare(a_->pd, options());
    const QueuePairAddress own = prepared.address();
    EXPECT_THAT(error_of([&] { static_cast<void>(std::move(prepared).connect(own)); }),
                fails_with(modify, EINVAL, "datagram queue pairs (UD, SRD) have no peer"));
}

TEST_F(Srd, EveryLimitThatIsPassedIsNamed) {
    QueuePairOptions wanted = options();
    wanted.max_send_wr = 4097;
    wanted.max_recv_wr = 32769;
    wanted.max_send_sge = 3;
    wanted.max_recv_sge = 4;
    wanted.max_inline_data = 33;
    EXPECT_THAT(refusal(wanted),
                fails_with(create, EINVAL,
                           "SRD queue pair, max_send_wr 4097 is above the device's limit of 4096, "
                           "max_recv_wr 32769 is above the device's limit of 32768, "
                           "max_send_sge 3 is above the device's limit of 2, "
                           "max_recv_sge 4 is above the device's limit of 3, "
                           "max_inline_data 33 is above the device's limit of 32"));
    EXPECT_EQ(softverbs_live(SOFTVERBS_QP), 0U);
}

TEST_F(Srd, AtomicsAndAccessFlagsAreRefusedWithTheReason) {
    QueuePairOptions wanted = options();
    wanted.access = srd_access | Access::remote_atomic;
    EXPECT_THAT(refusal(wanted), fails_with(create, EOPNOTSUPP, "SRD queue pairs have no atomics"));
    wanted.access = Access::local_write;
    EXPECT_THAT(refusal(wanted),
                fails_with(create, EOPNOTSUPP, "restrict peers by the access of the memory"));
    EXPECT_TRUE(efadv_calls.created.empty());
}

TEST_F(Srd, QueuePairThatCannotInitialiseIsDestroyed) {
    testing::fail_next(modify, EIO);
    EXPECT_THAT(refusal(options()), fails_with(modify, EIO, "to INIT on port 1"));
    EXPECT_EQ(softverbs_live(SOFTVERBS_QP), 0U);
}

TEST_F(Srd, ErrorOfAConnectedQueuePairOnEfaNamesSrd) {
    for (const QueuePairType type :
         {QueuePairType::reliable_connected, QueuePairType::unreliable_connected}) {
        for (const auto extended : {ExtendedInterface::automatic, ExtendedInterface::required}) {
            QueuePairOptions wanted = options();
            wanted.type = type;
            wanted.max_inline_data = 0;
            wanted.extended = extended;
            EXPECT_THAT(refusal(wanted),
                        fails_with(EOPNOTSUPP,
                                   std::string(to_string(type)) +
                                       " queue pair: soft0 is an EFA device, which has SRD queue "
                                       "pairs instead: use QueuePairType"));
        }
    }
}

} // namespace
} // namespace rdmabuf
