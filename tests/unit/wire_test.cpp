// SPDX-License-Identifier: BSD-3-Clause
// What all wire forms have in common, and what each one's bytes are.
#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>

#include "support.hpp"

namespace rdmabuf {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

template <std::size_t N>
Bytes copy(const std::array<std::byte, N>& bytes) {
    return {bytes.begin(), bytes.end()};
}

Bytes bytes_of(std::initializer_list<int> values) {
    Bytes bytes;
    for (const int value : values) {
        bytes.push_back(static_cast<std::byte>(value));
    }
    return bytes;
}

template <class T>
T sample();
template <>
RemoteRegion sample() {
    return {.address = 0x1122334455667788, .length = 0x0102030405, .rkey = 0xaabbccdd};
}
template <>
QueuePairAddress sample() {
    QueuePairAddress address{.type = QueuePairType::unreliable_datagram,
                             .number = 0x123456,
                             .psn = 0xabcdef,
                             .qkey = 0x11111111,
                             .gid = {},
                             .lid = 0x1234,
                             .mtu = IBV_MTU_4096,
                             .max_dest_rd_atomic = 16};
    for (std::size_t i = 0; i < address.gid.bytes.size(); ++i) {
        address.gid.bytes[i] = static_cast<std::uint8_t>(0xf0 + i);
    }
    return address;
}

TEST(RemoteRegion, HasTheBytesItAlwaysHad) {
    EXPECT_THAT(sample<RemoteRegion>().encode(), ElementsAreArray(bytes_of({
                                                     'R',  'D',  'R',  'G',             // kind
                                                     1,    0,                           // version
                                                     0,    0,                           // reserved
                                                     0xdd, 0xcc, 0xbb, 0xaa,            // rkey
                                                     0x88, 0x77, 0x66, 0x55,            // address
                                                     0x44, 0x33, 0x22, 0x11,            //
                                                     5,    4,    3,    2,    1, 0, 0, 0 // length
                                                 })));
}

TEST(QueuePairAddress, HasTheBytesItAlwaysHad) {
    EXPECT_THAT(sample<QueuePairAddress>().encode(),
                ElementsAreArray(bytes_of({'R',  'D',  'Q',  'P',  // kind
                                           1,    0,                // version
                                           4,    5,                // UD, MTU 4096
                                           0x56, 0x34, 0x12, 0,    // number
                                           0xef, 0xcd, 0xab, 0,    // psn
                                           0x11, 0x11, 0x11, 0x11, // qkey
                                           0x34, 0x12,             // lid
                                           16,   0,                // rd_atomic, reserved
                                           0xf0, 0xf1, 0xf2, 0xf3, // GID
                                           0xf4, 0xf5, 0xf6, 0xf7, //
                                           0xf8, 0xf9, 0xfa, 0xfb, //
                                           0xfc, 0xfd, 0xfe, 0xff})));
}

template <class T>
class WireForm : public ::testing::Test {
  protected:
    static Result<T> decode(const Bytes& bytes) { return T::decode(bytes); }
    static Bytes good() { return copy(sample<T>().encode()); }
    /// What decoding says when one byte is different.
    static Result<T> changed(std::size_t position, int value) {
        Bytes bytes = good();
        bytes.at(position) = static_cast<std::byte>(value);
        return decode(bytes);
    }
};
using WireForms = ::testing::Types<RemoteRegion, QueuePairAddress>;
TYPED_TEST_SUITE(WireForm, WireForms);

TYPED_TEST(WireForm, ComesBackAsItWas) {
    const auto decoded = this->decode(this->good());
    ASSERT_TRUE(decoded) << decoded.reason();
    EXPECT_EQ(*decoded, sample<TypeParam>());
    EXPECT_EQ(decoded.value(), sample<TypeParam>());
    EXPECT_EQ(decoded.error(), 0);
    EXPECT_EQ(decoded.reason(), "");
}

TYPED_TEST(WireForm, OfAnyShorterLengthIsTruncated) {
    for (std::size_t length = 0; length < TypeParam::wire_size; ++length) {
        Bytes bytes = this->good();
        bytes.resize(length);
        const auto decoded = this->decode(bytes);
        EXPECT_FALSE(decoded) << length;
        EXPECT_EQ(decoded.error(), EMSGSIZE) << length;
        EXPECT_THAT(decoded.reason(), HasSubstr("truncated")) << length;
    }
}

TYPED_TEST(WireForm, WithTrailingBytesIsRefused) {
    for (const std::size_t more : {1U, 7U, 4096U}) {
        Bytes bytes = this->good();
        bytes.resize(bytes.size() + more);
        const auto decoded = this->decode(bytes);
        EXPECT_EQ(decoded.error(), EMSGSIZE) << more;
        EXPECT_THAT(decoded.reason(), HasSubstr("more follow")) << more;
    }
}

TYPED_TEST(WireForm, OfAnotherVersionSaysSo) {
    for (const std::size_t position : {4U, 5U}) {
        const auto decoded = this->changed(position, 2);
        EXPECT_EQ(decoded.error(), EPROTONOSUPPORT);
        EXPECT_THAT(decoded.reason(), HasSubstr("another version"));
    }
}

TYPED_TEST(WireForm, OfAnotherKindSaysSo) {
    for (const std::size_t position : {0U, 1U, 2U, 3U}) {
        const auto decoded = this->changed(position, 'X');
        EXPECT_EQ(decoded.error(), EPROTO);
        EXPECT_THAT(decoded.reason(), HasSubstr("another type"));
    }
}

// Any bytes are a value or an error, and no two forms have the same meaning.
TYPED_TEST(WireForm, OfRandomBytesIsAnErrorOrAValueThatEncodesToTheSameBytes) {
    constexpr int rounds = 100'000;
    std::mt19937_64 random(20260101); // NOLINT(cert-msc51-cpp): the same bytes each time
    const Bytes good = this->good();
    int values = 0;
    for (int round = 0; round < rounds; ++round) {
        Bytes bytes(random() % 8 == 0 ? random() % 64 : TypeParam::wire_size);
        std::generate(bytes.begin(), bytes.end(),
                      [&random] { return static_cast<std::byte>(random()); });
        if (round % 2 == 0) {
            // With a good header, more of them get further.
            std::copy_n(good.begin(), std::min<std::size_t>(8, bytes.size()), bytes.begin());
        }
        if (round % 4 == 0 && bytes.size() == good.size()) {
            // A good form with one byte changed.
            bytes = good;
            bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        }
        if (const auto decoded = this->decode(bytes)) {
            ++values;
            ASSERT_EQ(copy(decoded->encode()), bytes);
        } else {
            ASSERT_THAT(decoded.error(), ::testing::AnyOf(EMSGSIZE, EPROTO, EPROTONOSUPPORT));
            ASSERT_NE(decoded.reason(), "");
        }
    }
    // Both outcomes must have been met often.
    EXPECT_GT(values, rounds / 100);
    EXPECT_LT(values, rounds - rounds / 100);
}

class RemoteRegionForm : public WireForm<RemoteRegion> {};

TEST_F(RemoteRegionForm, WithReservedBitsIsRefused) {
    for (const std::size_t position : {6U, 7U}) {
        EXPECT_EQ(changed(position, 0x80).error(), EPROTO);
        EXPECT_THAT(changed(position, 0x80).reason(), HasSubstr("reserved"));
    }
}

TEST_F(RemoteRegionForm, ThatWrapsAroundTheAddressSpaceIsRefused) {
    const RemoteRegion last{.address = ~std::uint64_t{0}, .length = 0, .rkey = 1};
    EXPECT_TRUE(RemoteRegion::decode(last.encode()));
    const RemoteRegion wrapped{.address = ~std::uint64_t{0}, .length = 1, .rkey = 1};
    const auto decoded = RemoteRegion::decode(wrapped.encode());
    EXPECT_EQ(decoded.error(), EPROTO);
    EXPECT_THAT(decoded.reason(), HasSubstr("overflows"));
}

class QueuePairAddressForm : public WireForm<QueuePairAddress> {};

TEST_F(QueuePairAddressForm, WithReservedBitsIsRefused) {
    EXPECT_EQ(changed(23, 1).error(), EPROTO);
    EXPECT_THAT(changed(23, 1).reason(), HasSubstr("reserved"));
}

TEST_F(QueuePairAddressForm, OfATypeThatIsNotKnownIsRefused) {
    for (const int type : {0, 1, 5, 8, 254}) {
        EXPECT_EQ(changed(6, type).error(), EPROTO) << type;
        EXPECT_THAT(changed(6, type).reason(), HasSubstr("type")) << type;
    }
    for (const int type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_DRIVER}) {
        EXPECT_TRUE(changed(6, type)) << type;
    }
}

TEST_F(QueuePairAddressForm, OfAnMtuThatThereIsNotIsRefused) {
    for (const int mtu : {0, 6, 255}) {
        EXPECT_EQ(changed(7, mtu).error(), EPROTO) << mtu;
        EXPECT_THAT(changed(7, mtu).reason(), HasSubstr("MTU")) << mtu;
    }
}

TEST_F(QueuePairAddressForm, WithMoreThan24BitsInANumberIsRefused) {
    for (const std::size_t position : {11U, 15U}) {
        EXPECT_EQ(changed(position, 1).error(), EPROTO);
        EXPECT_THAT(changed(position, 1).reason(), HasSubstr("24 bits"));
    }
}

TEST(RemoteRegion, SlicesInside) {
    const RemoteRegion region{.address = 1000, .length = 100, .rkey = 7};
    EXPECT_EQ(region.slice(0, 100), region);
    EXPECT_EQ(region.slice(40, 60), (RemoteRegion{.address = 1040, .length = 60, .rkey = 7}));
    EXPECT_EQ(region.slice(100, 0), (RemoteRegion{.address = 1100, .length = 0, .rkey = 7}));
}

TEST(RemoteRegion, RefusesToSliceOutside) {
    const RemoteRegion region{.address = 1000, .length = 100, .rkey = 7};
    struct Case {
        std::uint64_t offset, length;
    };
    for (const auto& [offset, length] :
         {Case{0, 101}, Case{101, 0}, Case{60, 41}, Case{~std::uint64_t{0}, 2}}) {
        const auto error = testing::error_of(
            [&, o = offset, l = length] { static_cast<void>(region.slice(o, l)); });
        ASSERT_TRUE(error) << offset << " " << length;
        EXPECT_EQ(error->error(), ERANGE);
        EXPECT_EQ(error->hint(), std::to_string(length) + " bytes at offset " +
                                     std::to_string(offset) +
                                     " do not lie inside the remote region of 100 bytes");
    }
}

TEST(RemoteRegion, IsWhereItsFirstByteIs) {
    const RemoteRegion region{.address = 1000, .length = 100, .rkey = 7};
    const RemoteAddress start = region;
    EXPECT_EQ(start.address, 1000U);
    EXPECT_EQ(start.rkey, 7U);
    EXPECT_EQ(region.at(24).address, 1024U);
    EXPECT_EQ(region.at(24).rkey, 7U);
}

TEST(QueuePairType, HasTheFieldsNames) {
    EXPECT_STREQ(to_string(QueuePairType::reliable_connected), "RC");
    EXPECT_STREQ(to_string(QueuePairType::unreliable_connected), "UC");
    EXPECT_STREQ(to_string(QueuePairType::unreliable_datagram), "UD");
    EXPECT_STREQ(to_string(QueuePairType::scalable_reliable_datagram), "SRD");
}

} // namespace
} // namespace rdmabuf
