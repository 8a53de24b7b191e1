// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/address_handle.hpp>

#include "standin_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::Basics;
using testing::StandinTest;

class AddressHandleTest : public StandinTest {
  protected:
    Basics basics_;

    static QueuePairAddress peer() {
        QueuePairAddress address;
        address.gid =
            Gid::from_native(standin::gid_entry("2001:db8::9", 0, IBV_GID_TYPE_ROCE_V2).gid);
        address.lid = 12;
        return address;
    }
};

TEST_F(AddressHandleTest, LeadsToThePeersPort) {
    const AddressHandle ah(
        basics_.pd, peer(),
        {.port = 1, .gid_index = 3, .service_level = 2, .traffic_class = 9, .hop_limit = 5});
    const ibv_ah_attr& made = standin::record().ahs.at(0);
    EXPECT_EQ(made.dlid, 12);
    EXPECT_EQ(made.sl, 2);
    EXPECT_EQ(made.port_num, 1);
    EXPECT_EQ(made.is_global, 1);
    EXPECT_EQ(Gid::from_native(made.grh.dgid), peer().gid);
    EXPECT_EQ(made.grh.sgid_index, 3);
    EXPECT_EQ(made.grh.traffic_class, 9);
    EXPECT_EQ(made.grh.hop_limit, 5);
}

TEST_F(AddressHandleTest, WithoutAGidGoesByLid) {
    QueuePairAddress nearby = peer();
    nearby.gid = {};
    const AddressHandle ah(basics_.pd, nearby, {});
    EXPECT_EQ(standin::record().ahs.at(0).is_global, 0);
    EXPECT_EQ(standin::record().ahs.at(0).dlid, 12);
}

TEST_F(AddressHandleTest, ThatCannotBeMadeSaysFromWhereToWhere) {
    EXPECT_THAT(
        testing::error_of([&] { AddressHandle(basics_.pd, peer(), {.port = 2, .gid_index = 3}); }),
        testing::fails_with("ibv_create_ah", EINVAL, "port 2, GID index 3, to 2001:db8::9"));
    standin::fail_next("ibv_create_ah", EHOSTUNREACH);
    EXPECT_THAT(testing::error_of([&] { AddressHandle(basics_.pd, peer(), {}); }),
                testing::fails_with("ibv_create_ah", EHOSTUNREACH, "to 2001:db8::9"));
}

} // namespace
} // namespace rdmabuf
