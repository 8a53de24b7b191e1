// SPDX-License-Identifier: BSD-3-Clause
// The 40 bytes before the data of a received datagram. They contain the values of the address
// handle.
#include <endian.h>
#include <netinet/ip.h>
#include <stdlib.h>

#include <array>
#include <numeric>

#include "pair_test.hpp"

namespace softverbs_test {
namespace {

constexpr std::uint32_t header_length = 40;
constexpr std::uint32_t message = 13;
constexpr std::uint32_t padded = 16;
/// Length of BTH, DETH and ICRC in bytes.
constexpr std::uint32_t transport = 12 + 8 + 4;

class DatagramHeader : public PairTest {
  protected:
    void SetUp() override {
        ::setenv("SOFTVERBS_LINK_LAYER", "ethernet", 1);
        PairTest::SetUp();
        make(IBV_QPT_UD);
        for (const Side* const side : {&a, &b}) {
            to_init(side->qp.get());
            to_rtr(side->qp.get(), {});
            to_rts(side->qp.get(), {});
        }
    }
    void TearDown() override {
        PairTest::TearDown();
        ::unsetenv("SOFTVERBS_LINK_LAYER");
    }
    [[nodiscard]] ibv_gid gid(int index) const {
        ibv_gid found{};
        EXPECT_EQ(ibv_query_gid(context.get(), 1, index, &found), 0);
        return found;
    }
    /// Sends a datagram with the GID at @p index as source, and returns its header. Checks that sl
    /// in the completion is @p packet_type.
    std::array<std::byte, header_length> receive_header(int index, std::uint8_t packet_type,
                                                        bool immediate = false) {
        ibv_ah_attr address{};
        address.port_num = 1;
        address.is_global = 1;
        address.grh.dgid = gid(index);
        address.grh.sgid_index = static_cast<std::uint8_t>(index);
        address.grh.flow_label = 0x54321;
        address.grh.traffic_class = 0xa4;
        address.grh.hop_limit = 77;
        const UniqueAh ah(ibv_create_ah(pd.get(), &address));
        EXPECT_NE(ah, nullptr);
        b.fill(std::byte{0xee});
        receive(b, 1, 4096);
        Request request(a, b, immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, 2, message);
        request.wr.wr.ud = {ah.get(), b.qp->qp_num, good_attributes().qkey};
        EXPECT_EQ(post(a, request), 0);
        expect(a, 2, IBV_WC_SUCCESS);
        const ibv_wc received = expect(b, 1, IBV_WC_SUCCESS);
        EXPECT_NE(received.wc_flags & IBV_WC_GRH, 0U);
        EXPECT_EQ(received.byte_len, header_length + message);
        EXPECT_EQ(received.sl, packet_type);
        auto* const grh = reinterpret_cast<ibv_grh*>(b.memory.data());
        ibv_ah_attr answer{};
        ibv_wc copy = received;
        EXPECT_EQ(ibv_init_ah_from_wc(context.get(), 1, &copy, grh, &answer), 0);
        EXPECT_EQ(answer.grh.traffic_class, 0xa4);
        EXPECT_EQ(std::memcmp(&answer.grh.dgid, &address.grh.dgid, sizeof(ibv_gid)), 0);
        std::array<std::byte, header_length> header{};
        std::memcpy(header.data(), b.memory.data(), header.size());
        return header;
    }
    void expect_global(int index, std::uint8_t packet_type, std::uint8_t next_header,
                       std::uint32_t length) {
        SCOPED_TRACE(index);
        const auto header = receive_header(index, packet_type);
        ibv_grh grh{};
        std::memcpy(&grh, header.data(), sizeof grh);
        EXPECT_EQ(be32toh(grh.version_tclass_flow), 6U << 28 | 0xa4U << 20 | 0x54321U);
        EXPECT_EQ(be16toh(grh.paylen), length);
        EXPECT_EQ(grh.next_hdr, next_header);
        EXPECT_EQ(grh.hop_limit, 77);
        const ibv_gid own = gid(index);
        EXPECT_EQ(std::memcmp(&grh.sgid, &own, sizeof own), 0);
        EXPECT_EQ(std::memcmp(&grh.dgid, &own, sizeof own), 0);
    }
};

TEST_F(DatagramHeader, HasWhatTheAddressHandleSays) {
    constexpr std::uint8_t next_is_bth = 0x1b;
    expect_global(0, 0, next_is_bth, transport + padded);         // RoCE v1
    expect_global(2, 0, next_is_bth, transport + padded);         // also by an address of IPv4
    expect_global(1, 8 | 1, IPPROTO_UDP, 8 + transport + padded); // RoCE v2 over IPv6
}

TEST_F(DatagramHeader, IsThatOfIpv4InItsLast20BytesForRoceV2OverIpv4) {
    for (const bool immediate : {false, true}) {
        const auto header = receive_header(3, 8 | 2, immediate);
        for (std::size_t i = 0; i < 20; ++i) {
            EXPECT_EQ(header.at(i), std::byte{0});
        }
        iphdr ip{};
        std::memcpy(&ip, header.data() + 20, sizeof ip);
        EXPECT_EQ(ip.version, 4U);
        EXPECT_EQ(ip.ihl, 5U);
        EXPECT_EQ(ip.tos, 0xa4);
        EXPECT_EQ(be16toh(ip.tot_len), 20 + 8 + transport + (immediate ? 4 : 0) + padded);
        EXPECT_EQ(be16toh(ip.frag_off), IP_DF);
        EXPECT_EQ(ip.ttl, 77);
        EXPECT_EQ(ip.protocol, IPPROTO_UDP);
        const ibv_gid own = gid(3);
        EXPECT_EQ(std::memcmp(&ip.saddr, own.raw + 12, 4), 0);
        EXPECT_EQ(std::memcmp(&ip.daddr, own.raw + 12, 4), 0);
        // If the checksum is correct, the sum of all words of the header is 0xffff.
        std::array<std::uint16_t, 10> words{};
        std::memcpy(words.data(), header.data() + 20, sizeof ip);
        std::uint32_t sum = std::accumulate(words.begin(), words.end(), std::uint32_t{0});
        sum = (sum & 0xffff) + (sum >> 16);
        EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffU);
    }
}

} // namespace
} // namespace softverbs_test
