// SPDX-License-Identifier: BSD-3-Clause
// Multicast groups of rdma_cm on an Ethernet device. This is a program of its own, because
// librdmacm keeps the device open until the process ends.
#include <netinet/ip.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>

#include <array>
#include <cstddef>

#include "cm_fixture.hpp"

namespace softverbs_test {
namespace {

struct DestroyQp {
    void operator()(rdma_cm_id* id) const { rdma_destroy_qp(id); }
};
using UniqueCmQp = std::unique_ptr<rdma_cm_id, DestroyQp>;
struct DeregisterMemory {
    void operator()(ibv_mr* mr) const { EXPECT_EQ(ibv_dereg_mr(mr), 0); }
};
using UniqueMr = std::unique_ptr<ibv_mr, DeregisterMemory>;

UniqueCmQp make_qp(rdma_cm_id* id) {
    ibv_qp_init_attr attributes{};
    attributes.cap = {1, 1, 1, 1, 0};
    attributes.qp_type = IBV_QPT_UD;
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attributes), 0) << std::strerror(errno);
    return UniqueCmQp(id);
}

TEST(CmRoce, AnIpv4GroupReceivesDatagramsWithAnIpv4Header) {
    ASSERT_EQ(::setenv("SOFTVERBS_LINK_LAYER", "ethernet", 1), 0);
    ASSERT_EQ(softverbs_reset(nullptr, 1), 0);
    const Channel channel;
    const UniqueId member = channel.make_id(RDMA_PS_UDP);
    const UniqueId sender = channel.make_id(RDMA_PS_UDP);
    ASSERT_EQ(bind_error(member.get(), "127.0.0.1", 0), 0);
    ASSERT_EQ(bind_error(sender.get(), "127.0.0.1", 0), 0);
    const UniqueCmQp receiving = make_qp(member.get());
    const UniqueCmQp sending = make_qp(sender.get());

    // librdmacm attaches the queue pair to the MGID that the event contains.
    sockaddr_in group = ipv4("239.1.2.3", 0);
    ASSERT_EQ(rdma_join_multicast(member.get(), reinterpret_cast<sockaddr*>(&group), nullptr), 0);
    SeenEvent joined = channel.next();
    ASSERT_EQ(joined.type, RDMA_CM_EVENT_MULTICAST_JOIN);
    ASSERT_EQ(joined.status, 0);
    const std::array<std::uint8_t, 16> mgid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3};
    EXPECT_EQ(std::memcmp(&joined.ud.ah_attr.grh.dgid, mgid.data(), mgid.size()), 0);

    std::array<std::byte, 256> memory{};
    const UniqueMr region(rdma_reg_msgs(member.get(), memory.data(), memory.size()));
    const UniqueMr source(rdma_reg_msgs(sender.get(), memory.data(), memory.size()));
    ASSERT_TRUE(region && source);
    ASSERT_EQ(rdma_post_recv(member.get(), nullptr, memory.data(), 140, region.get()), 0);
    const std::unique_ptr<ibv_ah, decltype(&ibv_destroy_ah)> ah(
        ibv_create_ah(sender->pd, &joined.ud.ah_attr), &ibv_destroy_ah);
    ASSERT_NE(ah, nullptr);
    ASSERT_EQ(rdma_post_ud_send(sender.get(), nullptr, memory.data() + 156, 100, source.get(),
                                IBV_SEND_SIGNALED, ah.get(), joined.ud.qp_num),
              0);
    ibv_wc completion{};
    ASSERT_EQ(rdma_get_recv_comp(member.get(), &completion), 1);
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.byte_len, 140U);
    ASSERT_EQ(rdma_get_send_comp(sender.get(), &completion), 1);
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    iphdr ip{};
    std::memcpy(&ip, memory.data() + 20, sizeof ip);
    EXPECT_EQ(ip.version, 4U);
    EXPECT_EQ(ip.daddr, group.sin_addr.s_addr);
    EXPECT_EQ(rdma_leave_multicast(member.get(), reinterpret_cast<sockaddr*>(&group)), 0);
}

} // namespace
} // namespace softverbs_test
