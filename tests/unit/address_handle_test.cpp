// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <rdmabuf/queue_pair.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::Basics;
using testing::SoftverbsTest;

class AddressHandleTest : public SoftverbsTest {
  protected:
    static QueuePairAddress peer() {
        QueuePairAddress address;
        address.gid =
            Gid::from_native(testing::gid_entry("2001:db8::9", 0, IBV_GID_TYPE_ROCE_V2).gid);
        address.lid = 12;
        return address;
    }
};

class RoceAddressHandleTest : public AddressHandleTest {
  protected:
    Basics basics_;
};

TEST_F(RoceAddressHandleTest, LeadsToThePeersPort) {
    testing::set_gids({testing::gid_entry("fe80::2", 0, IBV_GID_TYPE_ROCE_V2),
                       testing::gid_entry("fe80::3", 1, IBV_GID_TYPE_ROCE_V2),
                       testing::gid_entry("fe80::4", 2, IBV_GID_TYPE_ROCE_V2),
                       testing::gid_entry("2001:db8::1", 3, IBV_GID_TYPE_ROCE_V2)});
    const AddressHandle ah(basics_.pd, peer(),
                           {.port = 1,
                            .gid_index = 3,
                            .service_level = 2,
                            .traffic_class = 9,
                            .hop_limit = 5,
                            .flow_label = 0x12345,
                            .static_rate = IBV_RATE_10_GBPS});
    const ibv_ah_attr& made = testing::record().ahs.at(0);
    EXPECT_EQ(made.dlid, 12);
    EXPECT_EQ(made.sl, 2);
    EXPECT_EQ(made.port_num, 1);
    EXPECT_EQ(made.is_global, 1);
    EXPECT_EQ(Gid::from_native(made.grh.dgid), peer().gid);
    EXPECT_EQ(made.grh.sgid_index, 3);
    EXPECT_EQ(made.grh.traffic_class, 9);
    EXPECT_EQ(made.grh.hop_limit, 5);
    EXPECT_EQ(made.grh.flow_label, 0x12345U);
    EXPECT_EQ(made.static_rate, IBV_RATE_10_GBPS);
    EXPECT_EQ(made.src_path_bits, 0);
}

TEST_F(RoceAddressHandleTest, AnswersTheSenderOfADatagram) {
    std::array<std::byte, 256> memory{};
    const MemoryRegion region(basics_.pd, memory.data(), memory.size());
    const auto prepare = [&] {
        return QueuePair::prepare(basics_.pd, {.send_cq = basics_.cq,
                                               .recv_cq = basics_.cq,
                                               .type = QueuePairType::unreliable_datagram});
    };
    const auto completed = [&](ibv_wc_opcode opcode) {
        for (int i = 0; i < 2; ++i) {
            const std::optional<WorkCompletion> found =
                basics_.cq.wait_one(std::chrono::seconds(20));
            if (found && succeeded(*found) && found->opcode == opcode) {
                return *found;
            }
        }
        ADD_FAILURE() << "no completion with the opcode " << opcode;
        return WorkCompletion{};
    };
    PreparedQueuePair prepared = prepare();
    const QueuePairAddress address = prepared.address();
    const QueuePair asked = std::move(prepared).activate();
    const QueuePair asking = prepare().activate();
    const AddressHandle to_asked(basics_.pd, address, {});
    ASSERT_TRUE(asked.post_recv(region.sge(0, 64)));
    ASSERT_TRUE(asking.post_send_to(region.sge(200, 8), to_asked.destination(address)));
    const WorkCompletion question = completed(IBV_WC_RECV);
    EXPECT_EQ(question.src_qp, asking.number());

    const AddressHandle sender =
        AddressHandle::to_sender(basics_.pd, question, std::span(memory).first<40>());
    ASSERT_TRUE(asking.post_recv(region.sge(64, 64)));
    memory[208] = std::byte{42};
    ASSERT_TRUE(
        asked.post_send_to(region.sge(208, 8), {sender.native(), question.src_qp, address.qkey}));
    EXPECT_EQ(completed(IBV_WC_RECV).src_qp, asked.number());
    EXPECT_EQ(memory[64 + 40], std::byte{42});

    EXPECT_THAT(testing::error_of([&] {
                    (void)AddressHandle::to_sender(basics_.pd, question,
                                                   std::span(memory).first<40>(), 9);
                }),
                testing::fails_with(
                    "ibv_create_ah_from_wc", EINVAL,
                    "port 9, to the sender from queue pair " + std::to_string(question.src_qp)));
}

TEST_F(AddressHandleTest, WithoutAGidGoesByLid) {
    testing::use_infiniband_device();
    const Basics basics;
    QueuePairAddress nearby = peer();
    nearby.gid = {};
    const AddressHandle ah(basics.pd, nearby, {});
    EXPECT_EQ(testing::record().ahs.at(0).is_global, 0);
    EXPECT_EQ(testing::record().ahs.at(0).dlid, 12);
}

TEST_F(RoceAddressHandleTest, ThatCannotBeMadeSaysFromWhereToWhere) {
    EXPECT_THAT(
        testing::error_of([&] { AddressHandle(basics_.pd, peer(), {.port = 2, .gid_index = 3}); }),
        testing::fails_with("ibv_create_ah", EINVAL, "port 2, GID index 3, to 2001:db8::9"));
    testing::fail_next("ibv_create_ah", EHOSTUNREACH);
    EXPECT_THAT(testing::error_of([&] { AddressHandle(basics_.pd, peer(), {}); }),
                testing::fails_with("ibv_create_ah", EHOSTUNREACH, "to 2001:db8::9"));
}

} // namespace
} // namespace rdmabuf
