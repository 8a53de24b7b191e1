// SPDX-License-Identifier: BSD-3-Clause
#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "manual_clock.hpp"

namespace {

using namespace std::chrono_literals;

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
    testing::Values(
        Setting{"SOFTVERBS_PROFILE", "mlx6", "default, mlx5, efa, bnxt, irdma, rxe, old-kernel"},
        Setting{"SOFTVERBS_DEVICES", "0", "a number from 1 to 8"},
        Setting{"SOFTVERBS_DEVICES", "9", "a number from 1 to 8"},
        Setting{"SOFTVERBS_DEVICES", "2x", "a number from 1 to 8"},
        Setting{"SOFTVERBS_LINK_LAYER", "token-ring", "infiniband or ethernet"},
        Setting{"SOFTVERBS_DISORDER", "acks,", "acks"}, Setting{"SOFTVERBS_DISORDER", ":5", "acks"},
        Setting{"SOFTVERBS_DISORDER", "acks,,qps", "acks"},
        Setting{"SOFTVERBS_REGISTRATION_DELAY", "1", "from 0ms to 10000ms"},
        Setting{"SOFTVERBS_REGISTRATION_DELAY", "-1ms", "from 0ms to 10000ms"},
        Setting{"SOFTVERBS_REGISTRATION_DELAY", "10001ms", "from 0ms to 10000ms"},
        Setting{"SOFTVERBS_REGISTRATION_DELAY", "4294967297ms", "from 0ms"},
        Setting{"SOFTVERBS_NETWORK", "tcp", "anyone on the path can read and change"},
        Setting{"SOFTVERBS_ADDRESS", "10.0.0.1", "SOFTVERBS_NETWORK=unprotected-tcp"},
        Setting{"SOFTVERBS_PORT", "20000", "SOFTVERBS_NETWORK=unprotected-tcp"},
        Setting{"SOFTVERBS_SECRET_FILE", "/tmp/secret", "SOFTVERBS_NETWORK=unprotected-tcp"},
        Setting{"SOFTVERBS_FAULTS", "reg_mrr=ENOMEM", "reg_mr#3=ENOMEM"},
        Setting{"SOFTVERBS_FAULTS", "port:1=down", "devices and ports that exist"}));

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

/// Registers memory in each of the protection domains @p pds, with one thread for each of them.
/// Returns the numbers of registrations that have finished after 19, 20, 39 and 40 ms.
std::array<unsigned, 4> finished_registrations(const std::vector<ibv_pd*>& pds) {
    const softverbs_test::ManualClock clock;
    std::atomic<unsigned> finished = 0;
    std::vector<std::jthread> threads;
    threads.reserve(pds.size());
    for (ibv_pd* const pd : pds) {
        threads.emplace_back([pd, &finished] {
            std::array<std::byte, 64> bytes{};
            ibv_mr* const mr = ibv_reg_mr(pd, bytes.data(), bytes.size(), 0);
            if (mr == nullptr || ibv_dereg_mr(mr) != 0) {
                ::_Exit(2);
            }
            ++finished;
        });
    }
    const auto after = [&](std::chrono::milliseconds time) {
        const auto at_rest = [] { return softverbs_test::is_at_rest(::getpid()); };
        static_cast<void>(softverbs_test::eventually(at_rest));
        softverbs_test::ManualClock::advance(time);
        static_cast<void>(softverbs_test::eventually(at_rest));
        return finished.load();
    };
    return {after(19ms), after(1ms), after(19ms), after(1ms)};
}

/// Ends the process with status 7 if registrations of one device are delayed in turn, and those of
/// two devices at the same time. Otherwise, ends it with status 1.
[[noreturn]] void exit_after_registrations() {
    ::setenv("SOFTVERBS_REGISTRATION_DELAY", "20ms", 1);
    ::setenv("SOFTVERBS_DEVICES", "2", 1);
    ibv_device** const list = ibv_get_device_list(nullptr);
    ibv_pd* const first = ibv_alloc_pd(ibv_open_device(list[0]));
    ibv_pd* const second = ibv_alloc_pd(ibv_open_device(list[1]));
    const bool in_turn = finished_registrations({first, first}) == std::array{0U, 1U, 1U, 2U};
    const bool together = finished_registrations({first, second}) == std::array{0U, 2U, 2U, 2U};
    ::_Exit(in_turn && together ? 7 : 1);
}

TEST(EnvironmentDeathTest, DelaysTheRegistrationsOfEachDeviceInTurn) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(exit_after_registrations(), testing::ExitedWithCode(7), "");
}

/// Returns the type of the next asynchronous event; -1 if there is none.
int next_event(ibv_context* context) {
    ibv_async_event event{};
    if (!softverbs_test::becomes_readable(context->async_fd) ||
        ibv_get_async_event(context, &event) != 0) {
        return -1;
    }
    ibv_ack_async_event(&event);
    return event.event_type;
}

/// Ends the process with status 7 if the faults occur, and only after the first queue pair was
/// created. Otherwise, ends it with status 1.
[[noreturn]] void exit_after_faults() {
    ::setenv("SOFTVERBS_FAULTS", "port=flap:20ms*1,device:0=reset@200ms,slow:1ms", 1);
    ibv_device** const list = ibv_get_device_list(nullptr);
    ibv_context* const context = ibv_open_device(list[0]);
    ibv_pd* const pd = ibv_alloc_pd(context);
    ibv_cq* const cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
    const softverbs_test::ManualClock clock;
    softverbs_test::ManualClock::advance(1h);
    const bool early = softverbs_test::is_readable(context->async_fd);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {1, 1, 1, 1, 0};
    const ibv_qp* const qp = ibv_create_qp(pd, &init);
    std::array<int, 3> events{};
    for (int& event : events) {
        event = next_event(context);
    }
    const bool occurred = events == std::array<int, 3>{IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE,
                                                       IBV_EVENT_DEVICE_FATAL};
    ::_Exit(!early && qp != nullptr && occurred ? 7 : 1);
}

TEST(EnvironmentDeathTest, FaultsOfPortsAndDevicesOccurAfterTheFirstQueuePairIsCreated) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(exit_after_faults(), testing::ExitedWithCode(7), "");
}

} // namespace
