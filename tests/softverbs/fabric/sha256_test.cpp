// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/sha256.hpp"

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace softverbs::fabric {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

std::string hex(const Digest& digest) {
    std::string text;
    for (const std::byte byte : digest) {
        std::array<char, 3> digits{};
        std::snprintf(digits.data(), digits.size(), "%02x", std::to_integer<unsigned>(byte));
        text += digits.data();
    }
    return text;
}

std::string sha256(std::string_view text) {
    Sha256 hash;
    hash.update(bytes_of(text));
    return hex(hash.finish());
}

std::string hmac(std::string_view key, std::string_view text) {
    const std::array<std::span<const std::byte>, 1> parts{bytes_of(text)};
    return hex(hmac_sha256(bytes_of(key), parts));
}

// Test vectors of FIPS 180-2, appendix B, and for the empty message of NIST's CAVP.
TEST(Sha256, AgreesWithThePublishedVectors) {
    EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(sha256(std::string(1'000'000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheBytesAreDivided) {
    const std::string text(300, 'x');
    for (std::size_t first = 0; first <= text.size(); first += 7) {
        Sha256 hash;
        hash.update(bytes_of(text).first(first));
        hash.update(bytes_of(text).subspan(first));
        EXPECT_EQ(hex(hash.finish()), sha256(text)) << first;
    }
}

// Test vectors of RFC 4231: test cases 1, 2, 3, 6 and 7.
TEST(HmacSha256, AgreesWithThePublishedVectors) {
    EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')),
              "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    const std::string long_key(131, '\xaa');
    EXPECT_EQ(hmac(long_key, "Test Using Larger Than Block-Size Key - Hash Key First"),
              "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    EXPECT_EQ(hmac(long_key,
                   "This is a test using a larger than block-size key and a larger than "
                   "block-size data. The key needs to be hashed before being used by the "
                   "HMAC algorithm."),
              "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(HmacSha256, CoversItsPartsAsOneMessage) {
    const std::array<std::span<const std::byte>, 3> parts{bytes_of("what do ya "), bytes_of(""),
                                                          bytes_of("want for nothing?")};
    EXPECT_EQ(hex(hmac_sha256(bytes_of("Jefe"), parts)),
              hmac("Jefe", "what do ya want for nothing?"));
}

TEST(Digests, AreEqualOnlyWhereAllBytesAre) {
    const Digest one = hmac_sha256(bytes_of("key"), {});
    for (std::size_t at = 0; at < one.size(); ++at) {
        Digest other = one;
        EXPECT_TRUE(equal_in_constant_time(one, other));
        other[at] ^= std::byte{1};
        EXPECT_FALSE(equal_in_constant_time(one, other)) << at;
    }
}

} // namespace
} // namespace softverbs::fabric
