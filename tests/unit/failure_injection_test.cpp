// SPDX-License-Identifier: BSD-3-Clause
// Each operation that makes verbs calls is run again and again, with its first call failing, then
// its second, and so on until it succeeds. Whatever fails, its errno comes out and nothing is left.
#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include <rdmabuf/device_clock.hpp>
#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/extended_completion_queue.hpp>
#include <rdmabuf/parent_domain.hpp>
#include <rdmabuf/rdmabuf.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::Basics;
using testing::error_of;
using testing::SoftverbsTest;

/// What an operation is given: made before anything fails.
struct Prepared {
    Basics basics;
    CompletionChannel channel{basics.context};
    SharedReceiveQueue srq{basics.pd};
    DeviceMemory dm{basics.context, 64};
    QueuePairAddress address = testing::own_address(basics.context);
    UniqueFd dmabuf = testing::make_dmabuf(65536);
    std::array<std::byte, 64> memory{};

    /// With the plain interface, so that there is no falling back on it that would hide a failure.
    [[nodiscard]] QueuePairOptions options(QueuePairType type) const {
        return {.send_cq = basics.cq,
                .recv_cq = basics.cq,
                .type = type,
                .extended = ExtendedInterface::off};
    }
    [[nodiscard]] PreparedQueuePair prepare(QueuePairType type) const {
        return QueuePair::prepare(basics.pd, options(type));
    }
};

struct Operation {
    const char* name;
    /// How many verbs calls it makes: a change shows here.
    unsigned calls;
    /// What it makes lives in the result until the counts have been taken.
    std::function<std::shared_ptr<void>(Prepared&)> run;
};
std::ostream& operator<<(std::ostream& out, const Operation& operation) {
    return out << operation.name;
}

template <class T, class... Arguments>
std::shared_ptr<void> make(Arguments&&... arguments) {
    return std::make_shared<T>(std::forward<Arguments>(arguments)...);
}

constexpr auto rc = QueuePairType::reliable_connected;
constexpr auto ud = QueuePairType::unreliable_datagram;

std::shared_ptr<void> prepare_and_connect(Prepared& given, QueuePairType type) {
    PreparedQueuePair prepared = given.prepare(type);
    return make<QueuePair>(type == ud ? std::move(prepared).activate()
                                      : testing::connect_to_itself(std::move(prepared)));
}

const std::array operations{
    Operation{"DeviceList", 1, [](Prepared&) { return make<DeviceList>(); }},
    Operation{"OpenByName", 2, [](Prepared&) { return make<Context>(Context::open("soft0")); }},
    Operation{"OpenFirst", 4, [](Prepared&) { return make<Context>(Context::open_first()); }},
    Operation{
        "Attributes", 1,
        [](Prepared& given) { return make<DeviceAttributes>(given.basics.context.attributes()); }},
    Operation{"Port", 1,
              [](Prepared& given) { return make<ibv_port_attr>(given.basics.context.port(1)); }},
    Operation{"BestGid", 3,
              [](Prepared& given) { return make<GidEntry>(given.basics.context.best_gid(1)); }},
    Operation{"ProtectionDomain", 1,
              [](Prepared& given) { return make<ProtectionDomain>(given.basics.context); }},
    Operation{"CompletionChannel", 1,
              [](Prepared& given) { return make<CompletionChannel>(given.basics.context); }},
    Operation{"CompletionQueue", 1,
              [](Prepared& given) {
                  return make<CompletionQueue>(given.basics.context,
                                               CompletionQueueOptions{.channel = &given.channel});
              }},
    Operation{"ExtendedCompletionQueue", 1,
              [](Prepared& given) {
                  return make<ExtendedCompletionQueue>(
                      given.basics.context,
                      ExtendedCompletionQueueOptions{.channel = &given.channel});
              }},
    Operation{"ThreadDomain", 1,
              [](Prepared& given) { return make<ThreadDomain>(given.basics.context); }},
    Operation{"ParentDomain", 1,
              [](Prepared& given) { return make<ParentDomain>(given.basics.pd); }},
    // The attributes of the device, and eight readings of its clock.
    Operation{"DeviceClock", 9,
              [](Prepared& given) { return make<DeviceClock>(given.basics.context); }},
    Operation{"SharedReceiveQueue", 2,
              [](Prepared& given) {
                  return make<SharedReceiveQueue>(given.basics.pd,
                                                  SharedReceiveQueueOptions{.limit = 4});
              }},
    Operation{"AddressHandle", 1,
              [](Prepared& given) {
                  return make<AddressHandle>(given.basics.pd, given.address,
                                             AddressHandleOptions{});
              }},
    Operation{"MemoryRegion", 1,
              [](Prepared& given) {
                  return make<MemoryRegion>(given.basics.pd, given.memory.data(), 64U);
              }},
    Operation{"DmaBufMR", 1,
              [](Prepared& given) {
                  return make<DmaBufMR>(given.basics.pd,
                                        DmaBufRange{.fd = given.dmabuf.get(), .length = 4096});
              }},
    Operation{"DeviceMemory", 1,
              [](Prepared& given) { return make<DeviceMemory>(given.basics.context, 64U); }},
    Operation{"DeviceMemoryMR", 1,
              [](Prepared& given) { return make<DeviceMemoryMR>(given.basics.pd, given.dm); }},
    // Device, queue pair, port, device, port, GID table, INIT.
    Operation{"PrepareWithBestGid", 7,
              [](Prepared& given) { return make<PreparedQueuePair>(given.prepare(rc)); }},
    Operation{"PrepareWithGidIndex", 5,
              [](Prepared& given) {
                  QueuePairOptions options = given.options(rc);
                  options.gid_index = 1;
                  options.srq = &given.srq;
                  return make<PreparedQueuePair>(QueuePair::prepare(given.basics.pd, options));
              }},
    Operation{"ConnectRc", 9, [](Prepared& given) { return prepare_and_connect(given, rc); }},
    Operation{"ActivateUd", 9, [](Prepared& given) { return prepare_and_connect(given, ud); }},
    Operation{"Abort", 10,
              [](Prepared& given) {
                  auto qp = prepare_and_connect(given, rc);
                  static_cast<QueuePair*>(qp.get())->abort();
                  return qp;
              }},
};

class FailureInjection : public SoftverbsTest, public ::testing::WithParamInterface<Operation> {};

TEST_P(FailureInjection, AtEachCallLeavesNothingBehind) {
    Prepared given;
    const std::size_t live = softverbs_live(SOFTVERBS_KINDS);
    const auto descriptors = testing::open_descriptors();
    unsigned n = 1;
    for (;; ++n) {
        ASSERT_LE(n, 64U) << "it never succeeds";
        testing::fail_call(n, EREMOTEIO); // which nothing else makes
        std::shared_ptr<void> result;
        const auto error = error_of([&] { result = GetParam().run(given); });
        if (!testing::all_failed()) {
            break; // it made fewer calls than that
        }
        ASSERT_TRUE(error) << "call " << n << " failed, and nobody noticed";
        EXPECT_EQ(error->error(), EREMOTEIO) << error->what();
        EXPECT_EQ(result, nullptr);
        EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), live) << "after the failure of call " << n;
        EXPECT_EQ(testing::open_descriptors(), descriptors) << "after the failure of call " << n;
    }
    EXPECT_EQ(n - 1, GetParam().calls);
    softverbs_clear_faults(); // the one left over
}

INSTANTIATE_TEST_SUITE_P(Operations, FailureInjection, ::testing::ValuesIn(operations),
                         [](const auto& operation) { return std::string(operation.param.name); });

class Fallbacks : public SoftverbsTest {
  protected:
    static PreparedQueuePair prepare(const Basics& given) {
        return QueuePair::prepare(given.pd, {.send_cq = given.cq, .recv_cq = given.cq});
    }
};

TEST_F(Fallbacks, QueuePairThatFailsBothWaysHasTheErrnoOfThePlainOne) {
    const Basics given;
    testing::fail_next("ibv_create_qp_ex", EOPNOTSUPP);
    testing::fail_next("ibv_create_qp", ENOMEM);
    EXPECT_THAT(error_of([&] { static_cast<void>(prepare(given)); }),
                testing::fails_with("ibv_create_qp", ENOMEM, "RC queue pair"));
}

TEST_F(Fallbacks, DmaBufImportIsAskedWithoutLeavingAnything) {
    const Basics given;
    const std::size_t live = softverbs_live(SOFTVERBS_KINDS);
    EXPECT_TRUE(given.context.dmabuf_import());
    EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), live);
    testing::fail_next("ibv_alloc_pd", ENOMEM);
    EXPECT_THAT(error_of([&] { static_cast<void>(given.context.dmabuf_import()); }),
                testing::fails_with("ibv_alloc_pd", ENOMEM, ""));
    EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), live);
}

} // namespace
} // namespace rdmabuf
