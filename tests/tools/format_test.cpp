// SPDX-License-Identifier: BSD-3-Clause
#include "format.hpp"

#include <gtest/gtest.h>

namespace {

using namespace rdmabuf::tools;

TEST(Format, SizesAreWrittenInTheLargestUnitThatDividesThem) {
    EXPECT_EQ(format_size(8), "8 bytes");
    EXPECT_EQ(format_size(4096), "4 KiB");
    EXPECT_EQ(format_size(1048576), "1 MiB");
    EXPECT_EQ(format_size(1048577), "1048577 bytes");
    EXPECT_EQ(format_size(std::uint64_t{3} << 30), "3 GiB");
}

TEST(Format, TimesAreWrittenWithThreeDigits) {
    EXPECT_EQ(format_usec(0.812), "812 ns");
    EXPECT_EQ(format_usec(3.417), "3.42 us");
    EXPECT_EQ(format_usec(34.17), "34.2 us");
    EXPECT_EQ(format_usec(341.7), "342 us");
    EXPECT_EQ(format_usec(1070), "1.07 ms");
    EXPECT_EQ(format_usec(2500000), "2.50 s");
}

TEST(Format, BandwidthsAreWrittenInPowersOf1000) {
    EXPECT_EQ(format_bandwidth(812), "812 B/s");
    EXPECT_EQ(format_bandwidth(31.2e3), "31.2 kB/s");
    EXPECT_EQ(format_bandwidth(81.23e6), "81.2 MB/s");
    EXPECT_EQ(format_bandwidth(12.4e9), "12.4 GB/s");
    EXPECT_EQ(format_bandwidth(999.7e6), "1.00 GB/s");
}

TEST(Format, RatesAreWrittenInPowersOf1000) {
    EXPECT_EQ(format_rate(812), "812 /s");
    EXPECT_EQ(format_rate(1.42e6), "1.42 M/s");
}

} // namespace
