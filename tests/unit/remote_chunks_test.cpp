// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/chunked_region.hpp>

#include "fails_with.hpp"
#include "support.hpp"

namespace rdmabuf {
namespace {

using testing::error_of;
using testing::fails_with;

const std::vector<RemoteRegion> three{{.address = 0x1000, .length = 0x800, .rkey = 7},
                                      {.address = 0x1800, .length = 0x1000, .rkey = 0xabcdef12},
                                      {.address = 0x2800, .length = 1, .rkey = 9}};

int decode_error(const std::vector<std::byte>& bytes) {
    return RemoteChunks::decode(bytes).error();
}

TEST(RemoteChunks, KnowsWhereItBeginsAndHowLongItIs) {
    const RemoteChunks chunks(three);
    EXPECT_EQ(chunks.address(), 0x1000U);
    EXPECT_EQ(chunks.length(), 0x1801U);
    EXPECT_EQ(RemoteChunks().address(), 0U);
    EXPECT_EQ(RemoteChunks().length(), 0U);
}

TEST(RemoteChunks, IsOneChunkOfARegion) {
    const RemoteChunks chunks = RemoteRegion{.address = 5, .length = 6, .rkey = 7};
    ASSERT_EQ(chunks.chunks().size(), 1U);
    EXPECT_EQ(chunks.chunks()[0], (RemoteRegion{.address = 5, .length = 6, .rkey = 7}));
}

TEST(RemoteChunks, FindsTheChunkOfAnAddress) {
    const RemoteChunks chunks(three);
    EXPECT_EQ(chunks.find(0xfff), nullptr);
    EXPECT_EQ(chunks.find(0x1000)->rkey, 7U);
    EXPECT_EQ(chunks.find(0x17ff)->rkey, 7U);
    EXPECT_EQ(chunks.find(0x1800)->rkey, 0xabcdef12U);
    EXPECT_EQ(chunks.find(0x2800)->rkey, 9U);
    EXPECT_EQ(chunks.find(0x2801), nullptr);
    EXPECT_EQ(RemoteChunks().find(0), nullptr);
}

TEST(RemoteChunks, RefusesChunksThatDoNotFollowEachOther) {
    const auto refusal = [](std::vector<RemoteRegion> chunks) {
        return error_of([&] { static_cast<void>(RemoteChunks(std::move(chunks))); });
    };
    EXPECT_THAT(
        refusal({{.address = 0, .length = 16}, {.address = 17, .length = 1}}),
        fails_with("RemoteChunks", EINVAL, "chunk 1 begins at 17, and the one before ends"));
    EXPECT_THAT(refusal({{.address = 0, .length = 16}, {.address = 15, .length = 1}}),
                fails_with("RemoteChunks", EINVAL, "ends at 16"));
    EXPECT_THAT(refusal({{.address = 0, .length = 0}}),
                fails_with("RemoteChunks", EINVAL, "chunk 0 has 0 bytes"));
    EXPECT_THAT(refusal({{.address = 8, .length = 1}, {}}),
                fails_with("RemoteChunks", EINVAL, "chunk 1 has 0 bytes"));
    EXPECT_THAT(refusal({{.address = ~std::uint64_t{0}, .length = 2}}),
                fails_with("RemoteChunks", EINVAL, "ends beyond 64 bits"));
}

TEST(RemoteChunks, HasThisWireForm) {
    const RemoteChunks chunks(std::vector<RemoteRegion>{
        {.address = 0x0102030405060708, .length = 0x10, .rkey = 0xaabbccdd}});
    const auto bytes = chunks.encode();
    const std::vector<unsigned> expected{
        'R',  'D',  'R',  'C',  1,    0,    0,    0, 1, 0, 0, 0, 0, 0, 0,    0,    0x08, 0x07,
        0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x10, 0, 0, 0, 0, 0, 0, 0, 0xdd, 0xcc, 0xbb, 0xaa};
    ASSERT_EQ(bytes.size(), expected.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), expected[i]) << "byte " << i;
    }
}

TEST(RemoteChunks, DecodesWhatItEncoded) {
    for (const RemoteChunks& chunks : {RemoteChunks(), RemoteChunks(three)}) {
        const auto decoded = RemoteChunks::decode(chunks.encode());
        ASSERT_TRUE(decoded) << decoded.reason();
        EXPECT_EQ(*decoded, chunks);
    }
}

TEST(RemoteChunks, DecodesNothingOfAnotherSize) {
    const auto whole = RemoteChunks(three).encode();
    for (std::size_t size = 0; size < whole.size(); ++size) {
        EXPECT_EQ(decode_error({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}),
                  EMSGSIZE)
            << size;
    }
    auto more = whole;
    more.emplace_back();
    EXPECT_EQ(decode_error(more), EMSGSIZE);
    more.resize(whole.size() + 12);
    EXPECT_EQ(decode_error(more), EMSGSIZE);
    // More chunks than memory has, in a few bytes.
    auto huge = whole;
    huge[11] = std::byte{0xff};
    EXPECT_EQ(decode_error(huge), EMSGSIZE);
}

TEST(RemoteChunks, DecodesNothingThatIsSomethingElse) {
    const auto with = [](std::size_t at, unsigned value) {
        auto bytes = RemoteChunks(three).encode();
        bytes[at] = static_cast<std::byte>(value);
        return decode_error(bytes);
    };
    EXPECT_EQ(with(0, 'X'), EPROTO);
    EXPECT_EQ(with(3, 'G'), EPROTO) << "a RemoteRegion";
    EXPECT_EQ(with(4, 2), EPROTONOSUPPORT);
    EXPECT_EQ(with(6, 1), EPROTO) << "reserved";
    EXPECT_EQ(with(12, 1), EPROTO) << "reserved";
    auto overflow = RemoteChunks(three).encode();
    overflow[23] = overflow[31] = std::byte{0xff}; // address and first length
    EXPECT_EQ(decode_error(overflow), EPROTO);
    auto empty = RemoteChunks(three).encode();
    std::fill(empty.begin() + 24, empty.begin() + 32, std::byte{0});
    EXPECT_EQ(decode_error(empty), EPROTO) << "a chunk of 0 bytes";
    auto nothing = RemoteChunks().encode();
    nothing[16] = std::byte{1};
    EXPECT_EQ(decode_error(nothing), EPROTO) << "an address of nothing";
}

TEST(RemoteChunks, AnyBytesDecodeToChunksOrAnError) {
    std::mt19937 random(17); // NOLINT(cert-msc51-cpp): the same every time
    unsigned decoded = 0;
    for (int i = 0; i < 20000; ++i) {
        auto bytes = RemoteChunks(three).encode();
        for (int changes = 0; changes < 2; ++changes) {
            bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        }
        if (const auto chunks = RemoteChunks::decode(bytes)) {
            ++decoded;
            ASSERT_EQ(chunks->encode(), bytes);
            ASSERT_FALSE(error_of([&] {
                const auto span = chunks->chunks();
                static_cast<void>(RemoteChunks(std::vector(span.begin(), span.end())));
            }));
        } else {
            ASSERT_NE(chunks.error(), 0);
            ASSERT_NE(chunks.reason(), "");
        }
    }
    EXPECT_GT(decoded, 1000U);
}

} // namespace
} // namespace rdmabuf
