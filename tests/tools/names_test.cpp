// SPDX-License-Identifier: BSD-3-Clause
#include "names.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using rdmabuf::tools::nearest_name;
using rdmabuf::tools::suggestion;

const std::vector<std::string> names{"devices", "exporters", "perf", "level-zero", "mlx5_0"};

TEST(NearestName, DiffersInAtMostTwoCharacters) {
    EXPECT_EQ(nearest_name("device", names), "devices");
    EXPECT_EQ(nearest_name("exproter", names), "exporters");
    EXPECT_EQ(nearest_name("devs", names), "");
    EXPECT_EQ(nearest_name("measure", names), "");
}

TEST(NearestName, ExchangedCharactersAreOneEdit) {
    EXPECT_EQ(nearest_name("prefxy", names), "");
    EXPECT_EQ(nearest_name("pref", names), "perf");
    EXPECT_EQ(nearest_name("dveicse", names), "devices");
    EXPECT_EQ(nearest_name("vdeicse", names), "");
}

TEST(NearestName, IgnoresCaseAndTheKindOfDash) {
    EXPECT_EQ(nearest_name("Level_Zero", names), "level-zero");
    EXPECT_EQ(nearest_name("MLX5-0", names), "mlx5_0");
}

TEST(NearestName, ShortNamesNeedACommonHalf) {
    EXPECT_EQ(nearest_name("x", names), "");
    EXPECT_EQ(nearest_name("", names), "");
    EXPECT_EQ(nearest_name("pe", names), "");
    EXPECT_EQ(nearest_name("pef", names), "perf");
}

TEST(NearestName, OfTwoNamesTheNearerOneIsSuggested) {
    const std::vector<std::string> devices{"mlx5_10", "mlx5_1", "mlx5_2"};
    EXPECT_EQ(suggestion("mlx51", devices), "; did you mean 'mlx5_1'?");
    EXPECT_EQ(suggestion("efa_0", devices), "");
}

} // namespace
