// SPDX-License-Identifier: BSD-3-Clause
#include <infiniband/verbs.h>
#include <poll.h>
#include <softverbs/softverbs.h>
#include <stdlib.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

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
    testing::Values(Setting{"SOFTVERBS_PROFILE", "mlx6",
                            "default, mlx5, efa, bnxt, irdma, rxe, old-kernel"},
                    Setting{"SOFTVERBS_DEVICES", "0", "a number from 1 to 8"},
                    Setting{"SOFTVERBS_DEVICES", "9", "a number from 1 to 8"},
                    Setting{"SOFTVERBS_DEVICES", "2x", "a number from 1 to 8"},
                    Setting{"SOFTVERBS_LINK_LAYER", "token-ring", "infiniband or ethernet"},
                    Setting{"SOFTVERBS_FAULTS", "reg_mr#=ENOMEM", "reg_mr#3=ENOMEM"},
                    Setting{"SOFTVERBS_FAULTS", "reg_mr=ENOMEM,", "reg_mr#3=ENOMEM"},
                    Setting{"SOFTVERBS_FAULTS", "packet#1=drop:", "reg_mr#3=ENOMEM"},
                    Setting{"SOFTVERBS_FAULTS", "slow:20ms=", "reg_mr#3=ENOMEM"},
                    Setting{"SOFTVERBS_DISORDER", "acks,", "acks"},
                    Setting{"SOFTVERBS_DISORDER", ":5", "acks"},
                    Setting{"SOFTVERBS_DISORDER", "acks,,qps", "acks"},
                    Setting{"SOFTVERBS_REGISTRATION_DELAY", "1", "from 0ms to 10000ms"},
                    Setting{"SOFTVERBS_REGISTRATION_DELAY", "-1ms", "from 0ms to 10000ms"},
                    Setting{"SOFTVERBS_REGISTRATION_DELAY", "10001ms", "from 0ms to 10000ms"},
                    Setting{"SOFTVERBS_REGISTRATION_DELAY", "4294967297ms", "from 0ms"},
                    Setting{"SOFTVERBS_ADDRESS", "10.0.0.1", "SOFTVERBS_NETWORK=tcp"},
                    Setting{"SOFTVERBS_PORT", "20000", "SOFTVERBS_NETWORK=tcp"},
                    Setting{"SOFTVERBS_SECRET_FILE", "/tmp/secret", "SOFTVERBS_NETWORK=tcp"},
                    Setting{"SOFTVERBS_FAULTS", "reg_mrr=ENOMEM", "reg_mr#3=ENOMEM"},
                    Setting{"SOFTVERBS_FAULTS", "reg_mr=ENOSUCH", "reg_mr#3=ENOMEM"},
                    Setting{"SOFTVERBS_FAULTS", "packet#1=explode", "reg_mr#3=ENOMEM"},
                    Setting{"SOFTVERBS_FAULTS", "port:1=down", "devices and ports that exist"},
                    Setting{"SOFTVERBS_FAULTS", "device=reset@soon", "reg_mr#3=ENOMEM"}));

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

/// Registers and deregisters memory @p count times in each of the protection domains
/// @p pds, with one thread for each of them. Returns the duration in milliseconds.
long registration_time(const std::vector<ibv_pd*>& pds, int count) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    threads.reserve(pds.size());
    for (ibv_pd* const pd : pds) {
        threads.emplace_back([pd, count] {
            std::array<std::byte, 64> bytes{};
            for (int i = 0; i < count; ++i) {
                ibv_mr* const mr = ibv_reg_mr(pd, bytes.data(), bytes.size(), 0);
                if (mr == nullptr || ibv_dereg_mr(mr) != 0) {
                    ::_Exit(2);
                }
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration_cast<std::chrono::milliseconds>(end - begin).count();
}

/// Returns a protection domain of each of two devices, on which a registration takes @p delay.
std::array<ibv_pd*, 2> delayed_domains(const char* delay) {
    ::setenv("SOFTVERBS_REGISTRATION_DELAY", delay, 1);
    ::setenv("SOFTVERBS_DEVICES", "2", 1);
    ibv_device** const list = ibv_get_device_list(nullptr);
    return {ibv_alloc_pd(ibv_open_device(list[0])), ibv_alloc_pd(ibv_open_device(list[1]))};
}

/// Ends the process with status 7 if registrations take 20 ms each, and if those of one device do
/// not overlap. Otherwise, ends it with status 1.
[[noreturn]] void exit_after_registrations_of_one_device() {
    ibv_pd* const pd = delayed_domains("20ms")[0];
    const bool each = registration_time({pd}, 3) >= 60;
    const bool in_turn = registration_time({pd, pd}, 5) >= 200;
    ::_Exit(each && in_turn ? 7 : 1);
}

/// Ends the process with status 7 if registrations of two devices overlap. Otherwise, ends it with
/// status 1. The long delay leaves time for the start of two threads on a busy machine.
[[noreturn]] void exit_after_registrations_of_two_devices() {
    const auto [first, second] = delayed_domains("2000ms");
    const long time = registration_time({first, second}, 1);
    ::_Exit(time >= 2000 && time < 4000 ? 7 : 1);
}

TEST(EnvironmentDeathTest, RegistrationsOfOneDeviceAreDelayedInTurn) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(exit_after_registrations_of_one_device(), testing::ExitedWithCode(7), "");
}

TEST(EnvironmentDeathTest, RegistrationsOfTwoDevicesAreDelayedAtTheSameTime) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(exit_after_registrations_of_two_devices(), testing::ExitedWithCode(7), "");
}

/// Returns the type of the next asynchronous event; -1 if there is none within @p timeout_ms.
int next_event(ibv_context* context, int timeout_ms) {
    pollfd readable{context->async_fd, POLLIN, 0};
    ibv_async_event event{};
    if (::poll(&readable, 1, timeout_ms) != 1 || ibv_get_async_event(context, &event) != 0) {
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
    const bool early = next_event(context, 50) != -1;
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {1, 1, 1, 1, 0};
    const ibv_qp* const qp = ibv_create_qp(pd, &init);
    std::array<int, 3> events{};
    for (int& event : events) {
        event = next_event(context, 20'000);
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
