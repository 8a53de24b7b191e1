// SPDX-License-Identifier: BSD-3-Clause
#include "efa_test.hpp"

#include <errno.h>

// The profile efa: the device, its queue pairs, completion queues and address handles, and the
// functions of efadv.h.

namespace {

using namespace softverbs_test;

class EfaDevice : public EfaTest {
  protected:
    int create_error(ibv_qp_init_attr_ex init, std::uint32_t type = EFADV_QP_DRIVER_TYPE_SRD,
                     std::uint32_t length = sizeof(efadv_qp_init_attr)) {
        efadv_qp_init_attr extra{};
        extra.driver_qp_type = type;
        errno = 0;
        const UniqueQp qp(efadv_create_qp_ex(context.get(), &init, &extra, length));
        return qp != nullptr ? 0 : errno;
    }
};

// The device

TEST_F(EfaDevice, DeviceHasTheIdentityAndTheLimitsOfEfa) {
    EXPECT_EQ(context->device->node_type, IBV_NODE_UNSPECIFIED);
    EXPECT_EQ(context->device->transport_type, IBV_TRANSPORT_UNSPECIFIED);
    const ibv_device_attr device = attributes();
    EXPECT_EQ(device.vendor_id, 0x1d0fU);
    EXPECT_EQ(device.vendor_part_id, 0xefa1U);
    EXPECT_EQ(device.atomic_cap, IBV_ATOMIC_NONE);
    EXPECT_EQ(device.max_srq, 0);
    EXPECT_EQ(device.max_qp_wr, 4096);
    EXPECT_EQ(device.max_sge, 2);
    EXPECT_EQ(device.max_sge_rd, 1);
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_UNSPECIFIED);
    EXPECT_EQ(port.lid, 0);
    EXPECT_EQ(port.gid_tbl_len, 1);
    EXPECT_EQ(port.max_msg_sz, 8928U);
    EXPECT_EQ(gid.raw[0], 0xfe);
    EXPECT_EQ(gid.raw[1], 0x80);
}

TEST_F(EfaDevice, QueryReportsLimitsAndCapabilities) {
    efadv_device_attr device{};
    ASSERT_EQ(efadv_query_device(context.get(), &device, sizeof device), 0);
    EXPECT_EQ(device.comp_mask, 0U);
    EXPECT_EQ(device.max_sq_wr, 4096U);
    EXPECT_EQ(device.max_rq_wr, 32768U);
    EXPECT_EQ(device.max_sq_sge, 2);
    EXPECT_EQ(device.max_rq_sge, 3);
    EXPECT_EQ(device.inline_buf_size, 32);
    EXPECT_EQ(device.max_rdma_size, 1U << 30U);
    constexpr std::uint32_t rdma_write = 8;
    EXPECT_EQ(device.device_caps, EFADV_DEVICE_ATTR_CAPS_RDMA_READ |
                                      EFADV_DEVICE_ATTR_CAPS_RNR_RETRY |
                                      EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID | rdma_write);
    // The structure of an old program ends before device_caps.
    device.device_caps = 77;
    EXPECT_EQ(efadv_query_device(context.get(), &device, 24), 0);
    EXPECT_EQ(device.device_caps, 77U);
    EXPECT_EQ(efadv_query_device(context.get(), &device, 16), EINVAL);
}

TEST_F(EfaDevice, FunctionsRefuseADeviceOfAnotherDriver) {
    use("default");
    efadv_device_attr device{};
    EXPECT_EQ(efadv_query_device(context.get(), &device, sizeof device), EOPNOTSUPP);
    const UniqueCq cq = make_cq(16);
    EXPECT_EQ(create_error(srd_attributes(pd.get(), cq.get())), EOPNOTSUPP);
    ibv_qp_init_attr plain{};
    plain.qp_type = IBV_QPT_DRIVER;
    EXPECT_EQ(efadv_create_driver_qp(pd.get(), &plain, EFADV_QP_DRIVER_TYPE_SRD), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = 16;
    efadv_cq_init_attr extra{};
    errno = 0;
    EXPECT_EQ(efadv_create_cq(context.get(), &attributes, &extra, sizeof extra), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_ah_attr address = own_address();
    const UniqueAh handle(ibv_create_ah(pd.get(), &address));
    ASSERT_NE(handle, nullptr);
    efadv_ah_attr ahn{};
    EXPECT_EQ(efadv_query_ah(handle.get(), &ahn, sizeof ahn), EOPNOTSUPP);
}

// Queue pairs

TEST_F(EfaDevice, SrdQueuePairsAreCreatedByTheirOwnFunctionsOnly) {
    const UniqueCq cq = make_cq(16);
    ibv_qp_init_attr_ex init = srd_attributes(pd.get(), cq.get());
    EXPECT_EQ(create_error(init), 0);
    EXPECT_EQ(create_error(init, 1), EOPNOTSUPP);
    EXPECT_EQ(create_error(init, 0, 8), EINVAL);
    errno = 0;
    EXPECT_EQ(ibv_create_qp_ex(context.get(), &init), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    init.qp_type = IBV_QPT_UD;
    EXPECT_EQ(create_error(init), EINVAL);
    ibv_qp_init_attr plain{};
    plain.send_cq = plain.recv_cq = cq.get();
    plain.cap = {5, 5, 1, 2, 0};
    plain.qp_type = IBV_QPT_DRIVER;
    const UniqueQp qp(efadv_create_driver_qp(pd.get(), &plain, EFADV_QP_DRIVER_TYPE_SRD));
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(qp->qp_type, IBV_QPT_DRIVER);
    EXPECT_LT(qp->qp_num, 1U << 16U);
    // The queue of scatter/gather entries has a power of two entries, as in libefa.
    EXPECT_EQ(plain.cap.max_send_wr, 8U);
    EXPECT_EQ(plain.cap.max_recv_wr, 8U);
    EXPECT_EQ(ibv_qp_to_qp_ex(qp.get()), nullptr);
}

TEST_F(EfaDevice, QueuePairsBeyondTheLimitsAreRefused) {
    const UniqueCq cq = make_cq(16);
    const auto with = [&](auto change) {
        ibv_qp_init_attr_ex init = srd_attributes(pd.get(), cq.get());
        change(init);
        return create_error(init);
    };
    using Init = ibv_qp_init_attr_ex;
    EXPECT_EQ(with([](Init& init) { init.cap.max_send_wr = 4096; }), 0);
    EXPECT_EQ(with([](Init& init) { init.cap.max_send_wr = 4097; }), EINVAL);
    EXPECT_EQ(with([](Init& init) { init.cap.max_recv_wr = 32769; }), EINVAL);
    EXPECT_EQ(with([](Init& init) { init.cap.max_send_sge = 3; }), EINVAL);
    EXPECT_EQ(with([](Init& init) { init.cap.max_recv_sge = 3; }), 0);
    EXPECT_EQ(with([](Init& init) { init.cap.max_recv_sge = 4; }), EINVAL);
    EXPECT_EQ(with([](Init& init) { init.cap.max_inline_data = 33; }), EINVAL);
    EXPECT_EQ(with([](Init& init) { init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS; }),
              EOPNOTSUPP);
    EXPECT_EQ(with([](Init& init) { init.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD; }),
              EOPNOTSUPP);
}

TEST_F(EfaDevice, ModifyRefusesWhatTheDriverDoesNotHave) {
    start();
    ibv_qp* const qp = a.qp.get();
    ibv_qp_attr attr{};
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS), EOPNOTSUPP);
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_AV), EOPNOTSUPP);
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_RNR_RETRY), EINVAL); // only from RTR to RTS
    attr.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 2;
    constexpr int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, mask | IBV_QP_QKEY), EOPNOTSUPP);
    attr.port_num = 1;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, mask), EINVAL);
    EXPECT_EQ(ibv_modify_qp(qp, &attr, mask | IBV_QP_QKEY), 0);
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_AV, &init), EOPNOTSUPP);
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_INIT);
}

// Address handles and completion queues

TEST_F(EfaDevice, AddressHandlesOfADomainAndAGidHaveOneNumber) {
    const auto number_of = [](const UniqueAh& handle) {
        efadv_ah_attr attr{};
        EXPECT_EQ(efadv_query_ah(handle.get(), &attr, sizeof attr), 0);
        EXPECT_EQ(attr.comp_mask, 0U);
        return attr.ahn;
    };
    ibv_gid other = gid;
    other.raw[15] ^= 0x80;
    const UniqueAh one(create_ah_to(pd.get(), gid));
    const UniqueAh two(create_ah_to(pd.get(), gid));
    const UniqueAh third(create_ah_to(pd.get(), other));
    ASSERT_NE(third, nullptr);
    EXPECT_EQ(number_of(one), number_of(two));
    EXPECT_NE(number_of(one), number_of(third));
    efadv_ah_attr attr{};
    EXPECT_EQ(efadv_query_ah(one.get(), &attr, 8), EINVAL);
    ibv_ah_attr by_lid{};
    by_lid.dlid = 1;
    by_lid.port_num = 1;
    errno = 0;
    EXPECT_EQ(ibv_create_ah(pd.get(), &by_lid), nullptr); // EFA has no LIDs
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(EfaDevice, CompletionHasTheNumberOfTheAddressHandleOrElseTheGidOfTheSender) {
    start();
    efadv_cq* const extra = efadv_cq_from_ibv_cq_ex(b.cq.get());
    const auto next = [&](ibv_gid& source) {
        ibv_poll_cq_attr none{};
        EXPECT_TRUE(becomes_true([&] { return ibv_start_poll(b.cq.get(), &none) == 0; }));
        const int found = efadv_wc_read_sgid(extra, &source);
        const std::uint32_t slid = ibv_wc_read_slid(b.cq.get());
        ibv_end_poll(b.cq.get());
        return std::pair(found, slid);
    };
    ASSERT_EQ(b.receive(1, b.sge(0, 64)), 0);
    ASSERT_EQ(b.receive(2, b.sge(0, 64)), 0);
    ASSERT_EQ(a.send(3, ah.get(), to_b, a.sge(0, 8)), 0);
    ibv_gid source{};
    EXPECT_EQ(next(source), std::pair(0, 0xffffU));
    EXPECT_EQ(std::memcmp(&source, &gid, sizeof gid), 0);
    let_b_know_a();
    efadv_ah_attr attr{};
    ASSERT_EQ(efadv_query_ah(b_ah.get(), &attr, sizeof attr), 0);
    ASSERT_EQ(a.send(4, ah.get(), to_b, a.sge(0, 8)), 0);
    EXPECT_EQ(next(source), std::pair(-ENOENT, std::uint32_t{attr.ahn}));
}

TEST_F(EfaDevice, CompletionQueueRefusesWhatLibefaDoesNotHave) {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = 100;
    efadv_cq_init_attr extra{};
    const auto failed = [&](std::uint32_t length) {
        errno = 0;
        const UniqueCqEx cq(efadv_create_cq(context.get(), &attributes, &extra, length));
        return cq != nullptr ? 0 : errno;
    };
    EXPECT_EQ(failed(sizeof extra), 0);
    EXPECT_EQ(failed(8), EINVAL);
    extra.wc_flags = 1U << 10U;
    EXPECT_EQ(failed(sizeof extra), EOPNOTSUPP);
    extra = {};
    extra.comp_mask = 1;
    EXPECT_EQ(failed(sizeof extra), EINVAL);
    extra = {};
    attributes.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    EXPECT_EQ(failed(sizeof extra), EOPNOTSUPP);
    const UniqueCq cq = make_cq(100);
    EXPECT_EQ(cq->cqe, 128);
    EXPECT_EQ(ibv_req_notify_cq(cq.get(), 1), EOPNOTSUPP);
    EXPECT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    EXPECT_EQ(ibv_resize_cq(cq.get(), 64), EOPNOTSUPP);
}

TEST_F(EfaDevice, DatagramOfAUdQueuePairHasSpaceForAHeader) {
    const UniqueCq cq = make_cq(16);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_UD, cq.get());
    init.cap.max_inline_data = 0;
    const UniqueQp qp = make_qp(init);
    ASSERT_EQ(start_srd(qp.get()), 0);
    ah.reset(create_ah_to(pd.get(), gid));
    std::vector<std::byte> memory(16384, std::byte{0x17});
    const UniqueMr mr = make_mr(memory.data(), memory.size());
    ibv_sge in{reinterpret_cast<std::uint64_t>(memory.data()), 8968, mr->lkey};
    ibv_recv_wr receive{1, nullptr, &in, 1};
    ibv_recv_wr* bad_receive = nullptr;
    ASSERT_EQ(ibv_post_recv(qp.get(), &receive, &bad_receive), 0);
    ibv_sge out{in.addr, 7168, mr->lkey};
    ibv_send_wr wr{};
    wr.wr_id = 2;
    wr.sg_list = &out;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {ah.get(), qp->qp_num, srd_qkey};
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(qp.get(), &wr, &bad), EINVAL); // not signaled
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(ibv_post_send(qp.get(), &wr, &bad), 0);
    for (const ibv_wc& wc : poll(cq.get(), 2)) {
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        if (wc.opcode == IBV_WC_RECV) {
            EXPECT_EQ(wc.byte_len, 7208U);
            EXPECT_EQ(wc.wc_flags, 0U);
        }
    }
}

} // namespace
