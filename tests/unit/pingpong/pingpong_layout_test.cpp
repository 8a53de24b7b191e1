// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "layout.hpp"

namespace {

using namespace pingpong;

constexpr std::uint64_t sizes[] = {1, 8, 4096, 65535, 1048576};

TEST(PingpongLayout, BothAreasLieInTheRegionBetweenGuards) {
    for (const std::uint64_t size : sizes) {
        const Layout layout = make_layout(size, Verb::write, 4096);
        EXPECT_GE(layout.outgoing, Layout::guard);
        EXPECT_GE(layout.incoming, layout.outgoing + size + Layout::guard);
        EXPECT_GE(layout.region_length, layout.incoming + size + Layout::guard);
        EXPECT_EQ(layout.total, 4096 + layout.region_length + 4096) << "a page on either side";
        EXPECT_EQ(layout.total % 64, 0U);
    }
}

TEST(PingpongLayout, TheRegionBeginsAtAPageThatIsNotTheBuffersFirst) {
    EXPECT_EQ(make_layout(8, Verb::send, 65536).region_offset, 65536U);
}

TEST(PingpongLayout, DataIsAlignedToNothing) {
    const Layout layout = make_layout(1048576, Verb::read, 4096);
    EXPECT_EQ(layout.outgoing % 2, 1U);
    EXPECT_EQ(layout.incoming % 2, 1U);
}

TEST(PingpongLayout, AtomicsAreAlignedToEight) {
    const Layout layout = make_layout(8, Verb::fetch_add, 4096);
    EXPECT_EQ(layout.outgoing % 8, 0U);
    EXPECT_EQ(layout.incoming % 8, 0U);
}

TEST(PingpongLayout, RegionsAreAlikeOnMachinesWithOtherPages) {
    const Layout small = make_layout(4096, Verb::write, 4096);
    const Layout large = make_layout(4096, Verb::write, 65536);
    EXPECT_EQ(small.region_length, large.region_length);
    EXPECT_EQ(small.outgoing, large.outgoing);
    EXPECT_EQ(small.incoming, large.incoming);
}

} // namespace
