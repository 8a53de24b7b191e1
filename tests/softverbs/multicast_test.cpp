// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include "pair_test.hpp"
#include "two_processes.hpp"

namespace {

using namespace softverbs_test;

constexpr std::uint16_t lid = 0xc001;
constexpr std::uint32_t multicast_qp = 0xffffff;
constexpr std::uint32_t datagram_qkey = 0x11111111;

ibv_gid group(std::uint8_t last) {
    ibv_gid gid{};
    gid.raw[0] = 0xff;
    gid.raw[1] = 0x12;
    gid.raw[15] = last;
    return gid;
}

ibv_ah_attr address_of(const ibv_gid& gid) {
    ibv_ah_attr address{};
    address.dlid = lid;
    address.port_num = 1;
    address.is_global = 1;
    address.grh.dgid = gid;
    address.grh.hop_limit = 1;
    return address;
}

class Multicast : public PairTest {
  protected:
    void send(const Side& from, ibv_ah* ah, std::uint64_t id) {
        Request request(from, from, IBV_WR_SEND, id, 100);
        request.wr.wr.ud = {ah, multicast_qp, datagram_qkey};
        ASSERT_EQ(post(from, request), 0);
        expect(from, id, IBV_WC_SUCCESS);
    }
};

TEST_F(Multicast, reachesEveryQueuePairThatIsAttached) {
    start(IBV_QPT_UD);
    const ibv_gid gid = group(1);
    ASSERT_EQ(ibv_attach_mcast(b.qp.get(), &gid, lid), 0);
    ASSERT_EQ(ibv_attach_mcast(b.qp.get(), &gid, lid), 0); // once is enough
    ibv_ah_attr attr = address_of(gid);
    const UniqueAh ah(ibv_create_ah(pd.get(), &attr));
    ASSERT_NE(ah, nullptr);
    a.fill(std::byte{8});
    receive(a, 1, 140, 1000);
    receive(b, 2, 140);
    receive(b, 3, 140, 200);
    send(a, ah.get(), 4);
    const ibv_wc wc = expect(b, 2, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, 140U);
    EXPECT_NE(wc.wc_flags & IBV_WC_GRH, 0U);
    EXPECT_EQ(wc.src_qp, a.qp->qp_num);
    EXPECT_EQ(b.memory[139], std::byte{8});
    EXPECT_EQ(b.memory[24], std::byte{0xff}); // the destination GID
    EXPECT_EQ(b.memory[39], std::byte{1});
    EXPECT_TRUE(is_empty(a.cq.get())); // not attached
    EXPECT_TRUE(is_empty(b.cq.get()));

    ASSERT_EQ(ibv_attach_mcast(a.qp.get(), &gid, lid), 0);
    send(a, ah.get(), 5); // which receives its own datagrams then
    expect(b, 3, IBV_WC_SUCCESS);
    expect(a, 1, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_detach_mcast(a.qp.get(), &gid, lid), 0);
    EXPECT_EQ(ibv_detach_mcast(a.qp.get(), &gid, lid), EINVAL);
    EXPECT_EQ(ibv_detach_mcast(b.qp.get(), &gid, lid), 0);
}

TEST_F(Multicast, keepsTheQueuePairBusyUntilItIsDetached) {
    start(IBV_QPT_UD);
    const ibv_gid gid = group(2);
    ASSERT_EQ(ibv_attach_mcast(b.qp.get(), &gid, lid), 0);
    errno = 0;
    EXPECT_EQ(ibv_destroy_qp(b.qp.get()), EBUSY);
    EXPECT_EQ(errno, EBUSY);
    expected_violations = 1;
    ibv_ah_attr attr = address_of(gid);
    const UniqueAh ah(ibv_create_ah(pd.get(), &attr));
    ASSERT_NE(ah, nullptr);
    receive(b, 2, 140);
    send(a, ah.get(), 1);
    expect(b, 2, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_detach_mcast(b.qp.get(), &gid, lid), 0);
    EXPECT_EQ(ibv_destroy_qp(b.qp.release()), 0);
}

TEST_F(Multicast, refusesWhatIsNoMulticast) {
    make(IBV_QPT_UD);
    ibv_gid gid = group(3);
    EXPECT_EQ(ibv_attach_mcast(a.qp.get(), &gid, 1), EINVAL); // a unicast LID
    gid.raw[0] = 0xfe;
    EXPECT_EQ(ibv_attach_mcast(a.qp.get(), &gid, lid), EINVAL);
    gid = group(3);
    make(IBV_QPT_RC);
    EXPECT_EQ(ibv_attach_mcast(a.qp.get(), &gid, lid), EINVAL);
}

class MulticastOfTwoProcesses : public TwoProcesses {};

TEST_F(MulticastOfTwoProcesses, reachesTheOtherProcess) {
    type = IBV_QPT_UD;
    const auto role = [](bool sends) {
        return [sends](End& end) {
            const ibv_gid gid = group(7);
            done(ibv_attach_mcast(end.qp, &gid, lid), "ibv_attach_mcast");
            end.receive(1, 0, 1000);
            end.meet();
            if (sends) {
                ibv_ah_attr attr = address_of(gid);
                ibv_ah* const ah = made(ibv_create_ah(end.pd, &attr), "ibv_create_ah");
                end.put(2000, 500, 3);
                ibv_sge sge{end.base + 2000, 500, end.mr->lkey};
                ibv_send_wr wr{};
                wr.wr_id = 2;
                wr.sg_list = &sge;
                wr.num_sge = 1;
                wr.opcode = IBV_WR_SEND;
                wr.send_flags = IBV_SEND_SIGNALED;
                wr.wr.ud = {ah, multicast_qp, qkey};
                ibv_send_wr* bad = nullptr;
                done(ibv_post_send(end.qp, &wr, &bad), "ibv_post_send");
                end.expect(2);
                done(ibv_destroy_ah(ah), "ibv_destroy_ah");
            }
            EXPECT_EQ(end.expect(1).byte_len, 540U);
            EXPECT_TRUE(end.has(40, 500, 3));
        };
    };
    run(role(true), role(false));
}

} // namespace
