// SPDX-License-Identifier: BSD-3-Clause
#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>
#include <stdlib.h>

#include <string>

#include <gtest/gtest.h>

namespace {

struct Setting {
    const char* variable;
    const char* value;
    const char* text;
};

/// Each invalid setting must end the program before it gets a device.
class EnvironmentTest : public testing::TestWithParam<Setting> {
  protected:
    // The death test must run in a new process, because a process reads the settings only once.
    void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_P(EnvironmentTest, EndsTheProgramWhenItSaysWhatCannotBe) {
    const auto& [variable, value, text] = GetParam();
    EXPECT_EXIT(
        {
            ::setenv(variable, value, 1);
            ibv_free_device_list(ibv_get_device_list(nullptr));
            ::_Exit(0);
        },
        testing::ExitedWithCode(2),
        std::string("softverbs: ") + variable + " is \"" + value + "\", and has to be .*" + text);
}

INSTANTIATE_TEST_SUITE_P(
    All, EnvironmentTest,
    testing::Values(Setting{"SOFTVERBS_PROFILE", "mlx6", "default, mlx5, efa, rxe, old-kernel"},
                    Setting{"SOFTVERBS_DEVICES", "0", "a number from 1 to 8"},
                    Setting{"SOFTVERBS_DEVICES", "9", "a number from 1 to 8"},
                    Setting{"SOFTVERBS_DEVICES", "2x", "a number from 1 to 8"},
                    Setting{"SOFTVERBS_LINK_LAYER", "token-ring", "infiniband or ethernet"},
                    Setting{"SOFTVERBS_FAULTS", "reg_mrr=ENOMEM", "reg_mr#3=ENOMEM"},
                    Setting{"SOFTVERBS_FAULTS", "reg_mr=ENOSUCH", "reg_mr#3=ENOMEM"},
                    Setting{"SOFTVERBS_FAULTS", "packet#1=explode", "reg_mr#3=ENOMEM"}));

TEST(EnvironmentDeathTest, SaysHowManyDevicesOfWhichKindAndWhichCallsFail) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(
        {
            ::setenv("SOFTVERBS_PROFILE", "rxe", 1);
            ::setenv("SOFTVERBS_DEVICES", "3", 1);
            ::setenv("SOFTVERBS_FAULTS", "open_device#2=EMFILE", 1);
            ibv_device** const list = ibv_get_device_list(nullptr);
            ibv_context* const context = ibv_open_device(list[2]);
            const bool as_asked = context != nullptr && ibv_open_device(list[2]) == nullptr &&
                                  errno == EMFILE &&
                                  (softverbs_features(2) & SOFTVERBS_FEATURE_DM) == 0;
            ::_Exit(as_asked ? 7 : 1);
        },
        testing::ExitedWithCode(7), "");
}

} // namespace
