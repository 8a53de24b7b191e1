// SPDX-License-Identifier: BSD-3-Clause
#include <arpa/inet.h>

#include <gtest/gtest.h>

#include <rdmabuf/context.hpp>

namespace rdmabuf {
namespace {

Gid parse(const char* text) {
    Gid gid;
    EXPECT_EQ(::inet_pton(AF_INET6, text, gid.bytes.data()), 1) << text;
    return gid;
}

TEST(Gid, PrintsAsAnIpv6Address) {
    EXPECT_EQ(to_string(parse("::ffff:192.0.2.1")), "::ffff:192.0.2.1");
    EXPECT_EQ(to_string(parse("fe80::2:c903:ae:e254")), "fe80::2:c903:ae:e254");
    EXPECT_EQ(to_string(Gid{}), "::");
}

TEST(Gid, KnowsMappedIpv4Addresses) {
    EXPECT_TRUE(parse("::ffff:192.0.2.1").is_ipv4_mapped());
    EXPECT_FALSE(parse("::192.0.2.1").is_ipv4_mapped());
    EXPECT_FALSE(parse("1::ffff:192.0.2.1").is_ipv4_mapped());
    EXPECT_FALSE(parse("2001:db8::1").is_ipv4_mapped());
}

TEST(Gid, KnowsLinkLocalAddresses) {
    EXPECT_TRUE(parse("fe80::1").is_link_local());
    EXPECT_TRUE(parse("febf::1").is_link_local());
    EXPECT_FALSE(parse("fec0::1").is_link_local());
    EXPECT_FALSE(parse("fd80::1").is_link_local());
}

TEST(Gid, OfAllZerosIsAnUnusedEntry) {
    EXPECT_TRUE(Gid{}.is_zero());
    EXPECT_FALSE(parse("::1").is_zero());
}

TEST(Gid, KeepsItsBytesToVerbsAndBack) {
    const Gid gid = parse("2001:db8::12");
    const union ibv_gid native = gid.native();
    EXPECT_EQ(native.raw[0], 0x20);
    EXPECT_EQ(native.raw[15], 0x12);
    EXPECT_EQ(Gid::from_native(native), gid);
}

TEST(GidType, HasTheNamesThatToolsPrint) {
    EXPECT_STREQ(to_string(GidType::infiniband), "IB");
    EXPECT_STREQ(to_string(GidType::roce_v1), "RoCE v1");
    EXPECT_STREQ(to_string(GidType::roce_v2), "RoCE v2");
    EXPECT_STREQ(to_string(static_cast<GidType>(9)), "unknown");
}

} // namespace
} // namespace rdmabuf
