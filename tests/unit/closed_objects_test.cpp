// SPDX-License-Identifier: BSD-3-Clause
// Objects that are used after they were closed, released or moved from.
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/transport.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::fails_with;
using testing::SoftverbsTest;

constexpr const char* closed_context = "the Context was closed, released or moved from";
constexpr const char* closed_pd = "the ProtectionDomain was closed, released or moved from";
constexpr const char* closed_cq = "the CompletionQueue was closed, released or moved from";
constexpr const char* closed_qp = "the queue pair was closed, released or moved from";

class ClosedObject : public SoftverbsTest {
  protected:
    Context context_ = Context::open_first();
    ProtectionDomain pd_{context_};
    CompletionQueue cq_{context_};
    alignas(8) std::array<std::byte, 64> memory_{};
    std::array<WorkCompletion, 1> found_{};

    [[nodiscard]] QueuePair connected() const {
        return testing::connect_to_itself(
            QueuePair::prepare(pd_, {.send_cq = cq_, .recv_cq = cq_}));
    }
    /// The Error of @p use, whose result nobody needs.
    template <class Use>
    static std::optional<Error> refusal(const Use& use) {
        return error_of([&] { static_cast<void>(use()); });
    }
};

TEST_F(ClosedObject, ContextRefusesEveryUse) {
    Context closed = Context::open_first();
    closed.close();
    EXPECT_THAT(refusal([&] { return closed.device_name(); }),
                fails_with("ibv_get_device_name", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return closed.attributes(); }),
                fails_with("ibv_query_device_ex", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return closed.port(1); }),
                fails_with("ibv_query_port", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return closed.gid_table(1); }),
                fails_with("ibv_query_device_ex", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return closed.best_gid(1); }),
                fails_with("ibv_query_device_ex", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return closed.wait_async_event(0ms); }),
                fails_with("ibv_get_async_event", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return closed.get_async_event(); }),
                fails_with("ibv_get_async_event", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return closed.async_fd(); }),
                fails_with("Context::async_fd", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return closed.dmabuf_import(); }),
                fails_with("ibv_alloc_pd", EBADF, closed_context));
}

TEST_F(ClosedObject, ContextMakesNoObjects) {
    Context closed = Context::open_first();
    closed.close();
    EXPECT_THAT(refusal([&] { return ProtectionDomain(closed); }),
                fails_with("ibv_alloc_pd", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return CompletionQueue(closed); }),
                fails_with("ibv_create_cq", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return ExtendedCompletionQueue(closed); }),
                fails_with("ibv_create_cq_ex", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return DeviceClock(closed); }),
                fails_with("ibv_query_device_ex", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return CompletionChannel(closed); }),
                fails_with("ibv_create_comp_channel", EBADF, closed_context));
    EXPECT_THAT(refusal([&] { return DeviceMemory(closed, 64); }),
                fails_with("ibv_alloc_dm", EBADF, closed_context));
}

TEST_F(ClosedObject, ContextOpensNoEndpoint) {
    Context closed = Context::open_first();
    closed.close();
    const auto endpoint = transport::Endpoint::open(closed, Resolver());
    ASSERT_FALSE(endpoint);
    EXPECT_EQ(endpoint.code().value(), EBADF);
    EXPECT_THAT(endpoint.message(), ::testing::HasSubstr(closed_context));
}

TEST_F(ClosedObject, ContextThatWasReleasedOrMovedFromIsRefusedToo) {
    Context released = Context::open_first();
    const Context owner = Context::adopt(released.release());
    EXPECT_THAT(refusal([&] { return released.attributes(); }),
                fails_with("ibv_query_device_ex", EBADF, closed_context));
    Context source = Context::open_first();
    const Context moved = std::move(source);
    // NOLINTNEXTLINE(bugprone-use-after-move): what this test is about
    EXPECT_THAT(refusal([&] { return source.attributes(); }),
                fails_with("ibv_query_device_ex", EBADF, closed_context));
}

TEST_F(ClosedObject, ProtectionDomainRegistersNothing) {
    ProtectionDomain closed(context_);
    closed.close();
    const UniqueFd dmabuf = testing::make_dmabuf(4096);
    const DeviceMemory dm(context_, 64);
    EXPECT_THAT(refusal([&] { return MemoryRegion(closed, memory_.data(), memory_.size()); }),
                fails_with("ibv_reg_mr", EBADF, closed_pd));
    EXPECT_THAT(refusal([&] { return DmaBufMR(closed, {.fd = dmabuf.get(), .length = 4096}); }),
                fails_with("ibv_reg_dmabuf_mr", EBADF, closed_pd));
    EXPECT_THAT(refusal([&] { return DeviceMemoryMR(closed, dm); }),
                fails_with("ibv_reg_dm_mr", EBADF, closed_pd));
    EXPECT_THAT(refusal([&] {
                    return register_memory(closed, Resolver(), memory_.data(), memory_.size());
                }),
                fails_with("register_memory", EBADF, closed_pd));
    EXPECT_THAT(refusal([&] {
                    return ChunkedRegion(closed, Resolver(),
                                         reinterpret_cast<std::uintptr_t>(memory_.data()),
                                         memory_.size());
                }),
                fails_with("ChunkedRegion", EBADF, closed_pd));
    EXPECT_THAT(refusal([&] { return RegistrationCache(closed, Resolver()); }),
                fails_with("RegistrationCache", EBADF, closed_pd));
}

TEST_F(ClosedObject, ProtectionDomainMakesNoQueuesAndHasNoContext) {
    ProtectionDomain closed(context_);
    closed.close();
    EXPECT_THAT(
        refusal([&] { return QueuePair::prepare(closed, {.send_cq = cq_, .recv_cq = cq_}); }),
        fails_with("ibv_create_qp", EBADF, closed_pd));
    EXPECT_THAT(refusal([&] { return SharedReceiveQueue(closed); }),
                fails_with("ibv_create_srq", EBADF, closed_pd));
    EXPECT_THAT(refusal([&] {
                    return AddressHandle(closed, testing::own_address(context_),
                                         AddressHandleOptions{});
                }),
                fails_with("ibv_create_ah", EBADF, closed_pd));
    EXPECT_THAT(refusal([&] { return closed.context().native(); }),
                fails_with("ProtectionDomain::context", EBADF, closed_pd));
}

TEST_F(ClosedObject, CompletionQueueDoesNotWait) {
    CompletionQueue closed(context_);
    closed.close();
    EXPECT_THAT(refusal([&] { return closed.wait(found_, 0ms); }),
                fails_with("CompletionQueue::wait", EBADF, closed_cq));
    EXPECT_THAT(error_of([&] { closed.acknowledge_event(); }),
                fails_with("ibv_ack_cq_events", EBADF, closed_cq));
    EXPECT_THAT(error_of([&] { closed.resize(4); }), fails_with("ibv_resize_cq", EBADF, closed_cq));
    EXPECT_THAT(error_of([&] { closed.moderate(1, 1us); }),
                fails_with("ibv_modify_cq", EBADF, closed_cq));
    EXPECT_THAT(refusal([&] { return closed.context().native(); }),
                fails_with("CompletionQueue::context", EBADF, closed_cq));
}

TEST_F(ClosedObject, QueueMakesNoQueuePair) {
    CompletionQueue closed(context_);
    closed.close();
    EXPECT_THAT(
        refusal([&] { return QueuePair::prepare(pd_, {.send_cq = closed, .recv_cq = cq_}); }),
        fails_with("ibv_create_qp", EBADF, "the send CompletionQueue was closed"));
    EXPECT_THAT(
        refusal([&] { return QueuePair::prepare(pd_, {.send_cq = cq_, .recv_cq = closed}); }),
        fails_with("ibv_create_qp", EBADF, "the receive CompletionQueue was closed"));
    SharedReceiveQueue srq(pd_);
    srq.close();
    EXPECT_THAT(refusal([&] {
                    return QueuePair::prepare(pd_, {.send_cq = cq_, .recv_cq = cq_, .srq = &srq});
                }),
                fails_with("ibv_create_qp", EBADF, "the SharedReceiveQueue was closed"));
    EXPECT_EQ(softverbs_live(SOFTVERBS_QP), 0U);
}

TEST_F(ClosedObject, ChannelDoesNotWaitAndMakesNoQueue) {
    CompletionChannel closed(context_);
    closed.close();
    constexpr const char* reason = "the CompletionChannel was closed, released or moved from";
    EXPECT_THAT(refusal([&] { return closed.wait(0ms); }),
                fails_with("CompletionChannel::wait", EBADF, reason));
    EXPECT_THAT(refusal([&] { return closed.fd(); }),
                fails_with("CompletionChannel::fd", EBADF, reason));
    EXPECT_THAT(refusal([&] { return closed.get_event(); }),
                fails_with("CompletionChannel::get_event", EBADF, reason));
    EXPECT_THAT(refusal([&] { return CompletionQueue(context_, {.channel = &closed}); }),
                fails_with("ibv_create_cq", EBADF, reason));
    EXPECT_THAT(refusal([&] { return ExtendedCompletionQueue(context_, {.channel = &closed}); }),
                fails_with("ibv_create_cq_ex", EBADF, reason));
}

TEST_F(ClosedObject, QueuePairHasNoState) {
    QueuePair closed = connected();
    closed.close();
    EXPECT_THAT(refusal([&] { return closed.state(); }),
                fails_with("ibv_query_qp", EBADF, closed_qp));
    EXPECT_THAT(error_of([&] { closed.abort(); }), fails_with("ibv_modify_qp", EBADF, closed_qp));
}

TEST_F(ClosedObject, PreparedQueuePairDoesNotConnect) {
    PreparedQueuePair closed = QueuePair::prepare(pd_, {.send_cq = cq_, .recv_cq = cq_});
    const QueuePairAddress address = closed.address();
    closed.close();
    EXPECT_THAT(refusal([&] { return closed.protection_domain().native(); }),
                fails_with("PreparedQueuePair::protection_domain", EBADF, "was closed"));
    EXPECT_THAT(refusal([&] { return std::move(closed).connect(address); }),
                fails_with("ibv_modify_qp", EBADF, closed_qp));
}

TEST_F(ClosedObject, RegionMakesNoEntry) {
    MemoryRegion closed(pd_, memory_.data(), memory_.size());
    closed.close();
    constexpr const char* reason = "the region was closed, released or moved from";
    EXPECT_THAT(refusal([&] { return closed.sge(); }), fails_with("Region::sge", EBADF, reason));
    EXPECT_THAT(refusal([&] { return closed.sge(0, 8); }),
                fails_with("Region::sge", EBADF, reason));
    EXPECT_THAT(refusal([&] { return closed.protection_domain().native(); }),
                fails_with("Region::protection_domain", EBADF, reason));
}

TEST_F(ClosedObject, SharedReceiveQueueHasNoLimit) {
    SharedReceiveQueue closed(pd_);
    closed.close();
    constexpr const char* reason = "the SharedReceiveQueue was closed";
    EXPECT_THAT(error_of([&] { closed.arm_limit(1); }),
                fails_with("ibv_modify_srq", EBADF, reason));
    EXPECT_THAT(refusal([&] { return closed.attributes(); }),
                fails_with("ibv_query_srq", EBADF, reason));
}

TEST_F(ClosedObject, MemoryWindowIsNotAllocatedAndHasNoProtectionDomain) {
    ProtectionDomain pd(context_);
    pd.close();
    EXPECT_THAT(refusal([&] { return MemoryWindow(pd, MemoryWindowType::type_1); }),
                fails_with("ibv_alloc_mw", EBADF, closed_pd));
    MemoryWindow closed(pd_, MemoryWindowType::type_2);
    closed.close();
    EXPECT_THAT(
        refusal([&] { return closed.protection_domain().native(); }),
        fails_with("MemoryWindow::protection_domain", EBADF, "the MemoryWindow was closed"));
}

TEST_F(ClosedObject, RegistrationHasNoProtectionDomain) {
    Registration closed = register_memory(pd_, Resolver(), memory_.data(), memory_.size());
    EXPECT_EQ(closed.protection_domain(), pd_);
    closed.close();
    EXPECT_THAT(refusal([&] { return closed.protection_domain().native(); }),
                fails_with("Region::protection_domain", EBADF, "was closed"));
}

TEST_F(ClosedObject, DeviceMemoryIsNeitherCopiedNorRegistered) {
    DeviceMemory closed(context_, 64);
    closed.close();
    constexpr const char* reason = "the DeviceMemory was closed, released or moved from";
    EXPECT_EQ(closed.try_copy_in(0, memory_), Status(EBADF));
    EXPECT_EQ(closed.try_copy_out(0, memory_), Status(EBADF));
    EXPECT_THAT(error_of([&] { closed.copy_in(0, memory_); }),
                fails_with("ibv_memcpy_to_dm", EBADF, reason));
    EXPECT_THAT(refusal([&] { return DeviceMemoryMR(pd_, closed); }),
                fails_with("ibv_reg_dm_mr", EBADF, reason));
    EXPECT_THAT(refusal([&] { return closed.context().native(); }),
                fails_with("DeviceMemory::context", EBADF, reason));
}

// The data path has no checks but assertions. Sanitizers do not follow the child process of a death
// test.
#if !defined(NDEBUG) && !defined(RDMABUF_SANITIZED)

using ClosedObjectDeathTest = ClosedObject;

TEST_F(ClosedObjectDeathTest, CompletionQueueIsNotPolled) {
    CompletionQueue closed(context_);
    closed.close();
    EXPECT_DEATH(static_cast<void>(closed.poll(found_)), "CompletionQueue was closed");
    EXPECT_DEATH(static_cast<void>(closed.poll(found_[0])), "CompletionQueue was closed");
    EXPECT_DEATH(static_cast<void>(closed.request_notification()), "CompletionQueue was closed");
}

TEST_F(ClosedObjectDeathTest, QueuePairDoesNotPost) {
    const MemoryRegion region(pd_, memory_.data(), memory_.size());
    QueuePair closed = connected();
    closed.close();
    EXPECT_DEATH(static_cast<void>(closed.post_send(region.sge())), "queue pair was closed");
    EXPECT_DEATH(static_cast<void>(closed.post_recv(region.sge())), "queue pair was closed");
    EXPECT_DEATH(static_cast<void>(closed.batch()), "queue pair was closed");
    EXPECT_DEATH(static_cast<void>(closed.number()), "queue pair was closed");
}

TEST_F(ClosedObjectDeathTest, MemoryWindowIsNotBound) {
    const MemoryRegion region(pd_, memory_.data(), memory_.size());
    const QueuePair qp = connected();
    MemoryWindow closed(pd_, MemoryWindowType::type_2);
    closed.close();
    EXPECT_DEATH(static_cast<void>(qp.post_bind(closed, {.region = region})),
                 "MemoryWindow was closed");
    EXPECT_DEATH(static_cast<void>(closed.rkey()), "MemoryWindow was closed");
}

TEST_F(ClosedObjectDeathTest, ListThatIsFullIsNotExtended) {
    SendList<1> list;
    list.send({});
    EXPECT_DEATH(list.send({}), "the list is full");
}

#endif

} // namespace
} // namespace rdmabuf
