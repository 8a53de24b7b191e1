// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "support/units.hpp"

namespace {

using namespace examples;

TEST(Units, SizesArePowersOf1024) {
    EXPECT_EQ(parse_size("8"), 8U);
    EXPECT_EQ(parse_size("64K"), 65536U);
    EXPECT_EQ(parse_size("64k"), 65536U);
    EXPECT_EQ(parse_size("64KiB"), 65536U);
    EXPECT_EQ(parse_size("1M"), 1048576U);
    EXPECT_EQ(parse_size("2G"), 2147483648U);
}

TEST(Units, ASizeThatDoesNotFitIsNone) {
    EXPECT_EQ(parse_size("17179869183G"), 17179869183U << 30U);
    EXPECT_FALSE(parse_size("17179869184G"));
    EXPECT_FALSE(parse_size("18446744073709551616"));
}

TEST(Units, SizesAreWrittenInTheLargestUnitThatDividesThem) {
    EXPECT_EQ(format_size(8), "8 bytes");
    EXPECT_EQ(format_size(4096), "4 KiB");
    EXPECT_EQ(format_size(1048576), "1 MiB");
    EXPECT_EQ(format_size(1048577), "1048577 bytes");
    EXPECT_EQ(format_size(std::uint64_t{3} << 30), "3 GiB");
}

TEST(Units, TimesAreWrittenWithThreeDigits) {
    EXPECT_EQ(format_usec(0.812), "812 ns");
    EXPECT_EQ(format_usec(3.417), "3.42 us");
    EXPECT_EQ(format_usec(34.17), "34.2 us");
    EXPECT_EQ(format_usec(341.7), "342 us");
    EXPECT_EQ(format_usec(1070), "1.07 ms");
    EXPECT_EQ(format_usec(2500000), "2.50 s");
}

TEST(Units, BandwidthsAreWrittenInPowersOf1000) {
    EXPECT_EQ(format_bandwidth(0.0312), "31.2 kB/s");
    EXPECT_EQ(format_bandwidth(81.23), "81.2 MB/s");
    EXPECT_EQ(format_bandwidth(12400), "12.4 GB/s");
}

} // namespace
