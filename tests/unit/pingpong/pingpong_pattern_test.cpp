// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "pattern.hpp"

namespace {

using namespace pingpong;

std::vector<std::byte> filled(const Pattern& pattern, std::size_t size, std::size_t first = 0) {
    std::vector<std::byte> bytes(size);
    pattern.fill(bytes, first);
    return bytes;
}

TEST(PingpongPattern, WhatWasFilledIsRight) {
    const Pattern pattern = Pattern::of_transfer(7, Role::initiator);
    for (std::size_t size = 0; size < 40; ++size) {
        for (std::size_t first = 0; first < 20; ++first) {
            EXPECT_FALSE(pattern.check(filled(pattern, size, first), first));
        }
    }
}

TEST(PingpongPattern, APartIsFilledAsTheWholeIs) {
    const Pattern pattern = Pattern::of_guard(Role::responder);
    const auto whole = filled(pattern, 100);
    for (std::size_t first = 0; first < 20; ++first) {
        const auto part = filled(pattern, 50, first);
        EXPECT_TRUE(std::equal(part.begin(), part.end(),
                               whole.begin() + static_cast<std::ptrdiff_t>(first)))
            << first;
    }
}

TEST(PingpongPattern, EveryBitThatFlipsIsFound) {
    const Pattern pattern = Pattern::of_transfer(0, Role::responder);
    const auto right = filled(pattern, 29, 3);
    for (std::size_t at = 0; at < right.size(); ++at) {
        for (int bit = 0; bit < 8; ++bit) {
            auto wrong = right;
            wrong[at] ^= std::byte{1} << bit;
            const auto mismatch = pattern.check(wrong, 3);
            ASSERT_TRUE(mismatch) << at;
            EXPECT_EQ(mismatch->offset, at);
            EXPECT_EQ(mismatch->expected, std::to_integer<int>(right[at]));
            EXPECT_EQ(mismatch->found, std::to_integer<int>(wrong[at]));
        }
    }
}

TEST(PingpongPattern, TheFirstOfSeveralIsReported) {
    const Pattern pattern(1);
    auto bytes = filled(pattern, 64);
    bytes[13] ^= std::byte{1};
    bytes[14] ^= std::byte{1};
    bytes[60] ^= std::byte{1};
    EXPECT_EQ(pattern.check(bytes)->offset, 13U);
}

// Eight bytes of one transfer never stand in another, at whatever place: neither stale data, nor
// the other end's, nor data that has been shifted can pass.
TEST(PingpongPattern, TransfersShareNothing) {
    std::set<std::vector<std::byte>> seen;
    std::size_t words = 0;
    for (std::uint64_t transfer = 0; transfer < 100; ++transfer) {
        for (const Role sender : {Role::initiator, Role::responder}) {
            const auto bytes = filled(Pattern::of_transfer(transfer, sender), 1024);
            for (auto at = bytes.begin(); at != bytes.end(); at += 8) {
                seen.emplace(at, at + 8);
                ++words;
            }
        }
    }
    EXPECT_EQ(seen.size(), words);
}

TEST(PingpongPattern, GuardsAreNoTransfersData) {
    const auto guard = filled(Pattern::of_guard(Role::initiator), 64);
    EXPECT_NE(guard, filled(Pattern::of_guard(Role::responder), 64));
    for (std::uint64_t transfer = 0; transfer < 4; ++transfer) {
        EXPECT_NE(guard, filled(Pattern::of_transfer(transfer, Role::initiator), 64));
        EXPECT_NE(guard, filled(Pattern::of_transfer(transfer, Role::responder), 64));
    }
}

} // namespace
