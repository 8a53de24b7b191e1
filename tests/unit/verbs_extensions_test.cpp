// SPDX-License-Identifier: BSD-3-Clause
#include "device/verbs_extensions.hpp"

#include <dlfcn.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/resolver.hpp>

#include "child_process.hpp"
#include "fails_with.hpp"
#include "slow_search.hpp"
#include "support.hpp"
#include "waiting.hpp"

namespace rdmabuf::detail {
namespace {

/// Device memory at the address 4096. Nothing exports it.
class DeviceMemoryExporter final : public Exporter {
  public:
    [[nodiscard]] std::string_view name() const noexcept override { return "device"; }
    [[nodiscard]] Availability availability() const override { return Availability::yes(); }
    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t) const override {
        return Allocation{.base = 4096, .length = 4096, .kind = MemoryKind::device};
    }
    [[nodiscard]] ExportedRange export_range(std::uintptr_t, std::size_t,
                                             MappingKind) const override {
        throw Error(ENOTSUP, "export_range");
    }
};

/// No verbs function is called on the objects of this device.
struct UnusedDevice {
    explicit UnusedDevice(const char* name) {
        std::strcpy(device.name, name);
        context.device = &device;
        pd.context = &context;
        cq.context = &context;
    }
    ibv_device device{};
    ibv_context context{};
    ibv_pd pd{};
    ibv_cq cq{};
};

// This test comes before the one that loads a library with the function.
TEST(VerbsExtensions, TrailNamesTheMappingForWhichAFunctionIsMissing) {
    UnusedDevice nic("mlx5_0");
    Trail trail;
    const auto error = testing::error_of([&] {
        static_cast<void>(register_memory(ProtectionDomain::borrow(&nic.pd),
                                          Resolver({std::make_shared<DeviceMemoryExporter>()}),
                                          std::uintptr_t{4096}, 4096,
                                          {.paths = {RegistrationPath::dmabuf_data_direct},
                                           .mapping = MappingKind::pcie,
                                           .trail = &trail}));
    });
    EXPECT_THAT(error, testing::fails_with("register_memory", ENOSYS,
                                           "memory of device mapped for PCIe (the caller chose the "
                                           "mapping): Function not implemented (ENOSYS): "
                                           "mlx5dv_reg_dmabuf_mr was not found"));
    ASSERT_EQ(trail.size(), 1U);
    EXPECT_EQ(trail[0].mapping, MappingKind::pcie);
}

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
    UnusedDevice nic("efa_0");
    const Availability available = Context::borrow(&nic.context).srd();
    EXPECT_FALSE(available);
    EXPECT_EQ(available.reason, reason);
    const QueuePairOptions options{.send_cq = CompletionQueue::borrow(&nic.cq),
                                   .recv_cq = CompletionQueue::borrow(&nic.cq),
                                   .type = QueuePairType::scalable_reliable_datagram};
    const auto error = testing::error_of(
        [&] { static_cast<void>(QueuePair::prepare(ProtectionDomain::borrow(&nic.pd), options)); });
    EXPECT_THAT(error, testing::fails_with("efadv_query_device", EOPNOTSUPP, reason));
}

} // namespace
} // namespace rdmabuf::detail
