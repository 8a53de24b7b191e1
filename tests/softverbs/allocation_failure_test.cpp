// SPDX-License-Identifier: BSD-3-Clause
// Failures of malloc(3) in a thread of softverbs or of the program.
#include <pthread.h>
#include <softverbs/softverbs.h>
#include <sys/prctl.h>

#include <array>
#include <atomic>
#include <string_view>

#include "cm_fixture.hpp"
#include "failing_malloc.hpp"

namespace {

/// The name of the thread in which malloc(3) fails. Null: it does not fail.
std::atomic<const char*> failing_thread{nullptr};
std::atomic<unsigned> failures{0};

bool fails_here() noexcept {
    const char* const name = failing_thread.load();
    if (name == nullptr) {
        return false;
    }
    std::array<char, 16> own{};
    ::prctl(PR_GET_NAME, own.data());
    const bool fails = std::string_view(own.data()) == name;
    failures += fails ? 1 : 0;
    return fails;
}

} // namespace

namespace softverbs_test {
namespace {

TEST(AllocationFailure, InTheThreadOfTheConnectionManagerLosesAMessage) {
    const Channel server;
    const Channel client;
    const UniqueId listener = server.listen();
    const UniqueId first = client.route(ntohs(rdma_get_src_port(listener.get())));
    const UniqueId second = client.route(ntohs(rdma_get_src_port(listener.get())));
    rdma_conn_param sent = parameters("first");
    malloc_fails = fails_here;
    failing_thread = "softverbs-cm";
    EXPECT_EQ(rdma_connect(first.get(), &sent), 0);
    ASSERT_TRUE(eventually([] { return failures != 0; }));
    failing_thread = nullptr;
    sent = parameters("second");
    ASSERT_EQ(rdma_connect(second.get(), &sent), 0);
    const SeenEvent request = server.next();
    EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    const UniqueId accepted(request.id);
}

TEST(AllocationFailure, IsReturnedByTheFunctionsThatPlanFaults) {
    ASSERT_EQ(softverbs_fail_call("ibv_reg_mr", 1, EIO), 0);
    softverbs_clear_faults();
    ::pthread_setname_np(::pthread_self(), "failing");
    malloc_fails = fails_here;
    failing_thread = "failing";
    const int call = softverbs_fail_call("ibv_create_comp_channel", 1, EIO);
    const int packet = softverbs_fail_packet(SOFTVERBS_PACKET_DROP, 1, 0);
    const int faults = softverbs_set_faults("create_comp_channel=ENOMEM");
    failing_thread = nullptr;
    EXPECT_EQ(call, ENOMEM);
    EXPECT_EQ(packet, ENOMEM);
    EXPECT_EQ(faults, ENOMEM);
    EXPECT_EQ(softverbs_pending_faults(), 0U);
}

} // namespace
} // namespace softverbs_test
