// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "statistics.hpp"

namespace {

using namespace pingpong;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

// 1, 2, ... count microseconds, the longest first.
std::vector<nanoseconds> countdown(int count) {
    std::vector<nanoseconds> times;
    for (int i = count; i > 0; --i) {
        times.emplace_back(microseconds(i));
    }
    return times;
}

TEST(PingpongStatistics, PercentilesAreTheSmallestThatSoManyDoNotExceed) {
    const Figures figures = summarise(countdown(1000), 1);
    EXPECT_DOUBLE_EQ(figures.min, 1);
    EXPECT_DOUBLE_EQ(figures.p50, 500);
    EXPECT_DOUBLE_EQ(figures.p99, 990);
    EXPECT_DOUBLE_EQ(figures.p999, 999);
    EXPECT_DOUBLE_EQ(figures.max, 1000);
    EXPECT_DOUBLE_EQ(figures.mean, 500.5);
}

TEST(PingpongStatistics, OfFewTimesTheHighPercentilesAreTheMaximum) {
    const Figures figures = summarise(countdown(20), 1);
    EXPECT_DOUBLE_EQ(figures.p50, 10);
    EXPECT_DOUBLE_EQ(figures.p99, 20);
    EXPECT_DOUBLE_EQ(figures.p999, 20);
}

TEST(PingpongStatistics, OneTimeIsEveryPercentile) {
    const Figures figures = summarise({nanoseconds(1500)}, 1);
    EXPECT_DOUBLE_EQ(figures.min, 1.5);
    EXPECT_DOUBLE_EQ(figures.p50, 1.5);
    EXPECT_DOUBLE_EQ(figures.p999, 1.5);
    EXPECT_DOUBLE_EQ(figures.mean, 1.5);
}

TEST(PingpongStatistics, ARoundTripCountsByHalf) {
    EXPECT_DOUBLE_EQ(summarise(countdown(1000), 2).p50, 250);
    EXPECT_DOUBLE_EQ(summarise(countdown(1000), 2).mean, 250.25);
}

TEST(PingpongStatistics, NothingMeasuredIsAllZero) {
    EXPECT_DOUBLE_EQ(summarise({}, 1).max, 0);
    EXPECT_DOUBLE_EQ(bandwidth_of(4096, 0), 0);
}

TEST(PingpongStatistics, AMegabyteInAMillisecondIsAGigabytePerSecond) {
    EXPECT_DOUBLE_EQ(bandwidth_of(1'000'000, 1000), 1000);
}

} // namespace
