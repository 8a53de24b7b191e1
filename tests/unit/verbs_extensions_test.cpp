// SPDX-License-Identifier: BSD-3-Clause
#include "device/verbs_extensions.hpp"

#include <dlfcn.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/queue_pair.hpp>

#include "child_process.hpp"
#include "fails_with.hpp"
#include "slow_search.hpp"
#include "support.hpp"
#include "waiting.hpp"

namespace rdmabuf::detail {
namespace {

TEST(VerbsExtensions, AreLookedUpAgainWhenALaterDeviceBringsItsProvider) {
    ASSERT_EQ(verbs_extensions().mlx5_reg_dmabuf_mr, nullptr)
        << "no device is open in this program, and no provider is loaded";
    EXPECT_FALSE(data_direct_function());
    void* const provider = ::dlopen(LATER_PROVIDER, RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(provider, nullptr) << ::dlerror();
    EXPECT_EQ(reinterpret_cast<void*>(verbs_extensions().mlx5_reg_dmabuf_mr),
              ::dlsym(provider, "mlx5dv_reg_dmabuf_mr"));
    EXPECT_TRUE(data_direct_function());
    EXPECT_EQ(::dlclose(provider), 0);
}

TEST(VerbsExtensions, AreLookedUpInAForkedChildWhileAThreadOfTheParentLooksThemUp) {
    void* const another = ::dlopen("libutil.so.1", RTLD_NOW);
    ASSERT_NE(another, nullptr) << ::dlerror();
    testing::searches_wait = true;
    std::thread thread([] { static_cast<void>(verbs_extensions()); });
    EXPECT_TRUE(testing::eventually([] { return testing::waiting_searches == 1; }));
    testing::searches_wait = false;
    expect_success(fork_child(testing::time_limit, [] {
        static_cast<void>(verbs_extensions());
        return 0;
    }));
    testing::searches_end.count_down();
    thread.join();
    EXPECT_EQ(::dlclose(another), 0);
}

TEST(VerbsExtensions, DeviceHasNoSrdIfLibefaIsNotLoaded) {
    constexpr const char* reason =
        "there is no efadv_query_device: libibverbs has not loaded libefa, or libefa is older than "
        "rdma-core 26";
    // No verbs function is called on the device before libefa is looked up.
    ibv_device device{};
    std::strcpy(device.name, "efa_0");
    ibv_context context{};
    context.device = &device;
    ibv_pd pd{};
    pd.context = &context;
    ibv_cq cq{};
    cq.context = &context;

    const Availability available = Context::borrow(&context).srd();
    EXPECT_FALSE(available);
    EXPECT_EQ(available.reason, reason);
    const QueuePairOptions options{.send_cq = CompletionQueue::borrow(&cq),
                                   .recv_cq = CompletionQueue::borrow(&cq),
                                   .type = QueuePairType::scalable_reliable_datagram};
    const auto error = testing::error_of(
        [&] { static_cast<void>(QueuePair::prepare(ProtectionDomain::borrow(&pd), options)); });
    EXPECT_THAT(error, testing::fails_with("efadv_query_device", EOPNOTSUPP, reason));
}

} // namespace
} // namespace rdmabuf::detail
