// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "perf/statistics.hpp"

namespace {

using namespace rdmabuf::tools::perf;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr microseconds elapsed(7);

// 1, 2, ... count microseconds, the longest first.
std::vector<nanoseconds> countdown(int count) {
    std::vector<nanoseconds> times;
    for (int i = count; i > 0; --i) {
        times.emplace_back(microseconds(i));
    }
    return times;
}

TEST(PerfStatistics, PercentilesAreTheSmallestThatSoManyDoNotExceed) {
    const Figures figures = summarise(countdown(1000), 1, elapsed);
    EXPECT_DOUBLE_EQ(figures.min, 1);
    EXPECT_DOUBLE_EQ(figures.p50, 500);
    EXPECT_DOUBLE_EQ(figures.p99, 990);
    EXPECT_DOUBLE_EQ(figures.p999, 999);
    EXPECT_DOUBLE_EQ(figures.max, 1000);
    EXPECT_DOUBLE_EQ(figures.mean, 500.5);
}

TEST(PerfStatistics, OfFewTimesTheHighPercentilesAreTheMaximum) {
    const Figures figures = summarise(countdown(20), 1, elapsed);
    EXPECT_DOUBLE_EQ(figures.p50, 10);
    EXPECT_DOUBLE_EQ(figures.p99, 20);
    EXPECT_DOUBLE_EQ(figures.p999, 20);
}

TEST(PerfStatistics, OneTimeIsEveryPercentile) {
    const Figures figures = summarise({nanoseconds(1500)}, 1, elapsed);
    EXPECT_DOUBLE_EQ(figures.min, 1.5);
    EXPECT_DOUBLE_EQ(figures.p50, 1.5);
    EXPECT_DOUBLE_EQ(figures.p999, 1.5);
    EXPECT_DOUBLE_EQ(figures.mean, 1.5);
}

TEST(PerfStatistics, ARoundTripCountsByHalf) {
    const Figures figures = summarise(countdown(1000), 2, elapsed);
    EXPECT_DOUBLE_EQ(figures.p50, 250);
    EXPECT_DOUBLE_EQ(figures.mean, 250.25);
    EXPECT_DOUBLE_EQ(figures.elapsed, 7) << "it is not divided";
}

TEST(PerfStatistics, NothingMeasuredIsAllZero) {
    EXPECT_DOUBLE_EQ(summarise({}, 1, elapsed).max, 0);
    EXPECT_DOUBLE_EQ(summarise({}, 1, elapsed).elapsed, 0);
}

} // namespace
