// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "perf/layout.hpp"

namespace {

using namespace rdmabuf::tools::perf;

TEST(PerfLayout, DataLiesBetweenGuardsInItsSlot) {
    for (const std::uint64_t size : {1U, 8U, 4096U, 65535U, 1048576U}) {
        const Layout layout(size, 3, Verb::write, 4096);
        EXPECT_GE(layout.outgoing(), Layout::guard);
        EXPECT_GE(layout.incoming(), layout.outgoing() + size + Layout::guard);
        EXPECT_GE(layout.slot_size(), layout.incoming() + size + Layout::guard);
        EXPECT_EQ(layout.slot_size() % 64, 0U);
    }
}

TEST(PerfLayout, SlotsFollowEachOtherAndAreUsedAgainInTurn) {
    const Layout layout(100, 3, Verb::send, 4096);
    EXPECT_EQ(layout.slot(0), 0U);
    EXPECT_EQ(layout.slot(1), layout.slot_size());
    EXPECT_EQ(layout.slot(2), 2 * layout.slot_size());
    EXPECT_EQ(layout.slot(3), 0U);
    EXPECT_EQ(layout.slot(7), layout.slot(1));
    EXPECT_EQ(layout.region_length(), 3 * layout.slot_size());
}

TEST(PerfLayout, TheRegionHasAPageOnEitherSide) {
    const Layout layout(8, 2, Verb::send, 65536);
    EXPECT_EQ(layout.region_offset(), 65536U);
    EXPECT_EQ(layout.buffer_size(), 65536 + layout.region_length() + 65536);
}

TEST(PerfLayout, DataHasOddAddresses) {
    const Layout layout(1048576, 1, Verb::read, 4096);
    EXPECT_EQ(layout.outgoing() % 2, 1U);
    EXPECT_EQ(layout.incoming() % 2, 1U);
}

TEST(PerfLayout, AtomicsAreAlignedToEight) {
    const Layout layout(8, 16, Verb::fetch_add, 4096);
    EXPECT_EQ(layout.outgoing() % 8, 0U);
    EXPECT_EQ(layout.incoming() % 8, 0U);
}

TEST(PerfLayout, RegionsAreEqualOnMachinesWithOtherPages) {
    const Layout small(4096, 4, Verb::write, 4096);
    const Layout large(4096, 4, Verb::write, 65536);
    EXPECT_EQ(small.region_length(), large.region_length());
    EXPECT_EQ(small.slot(3), large.slot(3));
    EXPECT_EQ(small.outgoing(), large.outgoing());
    EXPECT_EQ(small.incoming(), large.incoming());
}

} // namespace
