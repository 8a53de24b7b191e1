// SPDX-License-Identifier: BSD-3-Clause
// Objects that are used after they were closed, released or moved from.
#undef NDEBUG // The inline functions called in this file have their assertions in every build.
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/device_clock.hpp>
#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/extended_completion_queue.hpp>
#include <rdmabuf/memory_window.hpp>
#include <rdmabuf/parent_domain.hpp>
#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/transport.hpp>
#include <rdmabuf/xrc_domain.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::fails_with;
using testing::SoftverbsTest;

template <class Object>
Object closed(Object object) {
    object.close();
    return object;
}

/// A use of a closed object, and the function that the error names.
struct Use {
    template <class Call>
    Use(const char* of, const Call& use) // NOLINT(*-explicit-*): for tables
        : function(of), call([use] { static_cast<void>(use()); }) {}

    const char* function;
    std::function<void()> call;
};

/// Expects the error EBADF of each use. @param object  what the errors call the closed object
void expect_refused(const std::string& object, const std::vector<Use>& uses) {
    for (const Use& use : uses) {
        EXPECT_THAT(error_of(use.call),
                    fails_with(use.function, EBADF,
                               "the " + object + " was closed, released or moved from"))
            << use.function;
    }
}

class ClosedObject : public SoftverbsTest {
  protected:
    Context context_ = Context::open_first();
    ProtectionDomain pd_{context_};
    CompletionQueue cq_{context_};
    alignas(8) std::array<std::byte, 64> memory_{};
    std::array<WorkCompletion, 1> found_{};

    [[nodiscard]] PreparedQueuePair prepared(const QueuePairOptions& options) const {
        return QueuePair::prepare(pd_, options);
    }
    [[nodiscard]] QueuePair connected() const {
        return testing::connect_to_itself(prepared({.send_cq = cq_, .recv_cq = cq_}));
    }
};

TEST_F(ClosedObject, ContextIsRefused) {
    const Context context = closed(Context::open_first());
    expect_refused("Context",
                   {{"ibv_get_device_name", [&] { return context.device_name(); }},
                    {"ibv_query_device_ex", [&] { return context.attributes(); }},
                    {"ibv_query_port", [&] { return context.port(1); }},
                    {"ibv_query_device_ex", [&] { return context.gid_table(1); }},
                    {"ibv_query_device_ex", [&] { return context.best_gid(1); }},
                    {"ibv_get_async_event", [&] { return context.wait_async_event(0ms); }},
                    {"ibv_get_async_event", [&] { return context.get_async_event(); }},
                    {"Context::async_fd", [&] { return context.async_fd(); }},
                    {"ibv_alloc_pd", [&] { return context.dmabuf_import(); }},
                    {"efadv_query_device", [&] { return context.srd(); }},
                    {"efadv_query_device", [&] { return context.srd_attributes(); }},
                    {"ibv_alloc_pd", [&] { return ProtectionDomain(context); }},
                    {"ibv_alloc_td", [&] { return ThreadDomain(context); }},
                    {"ibv_create_cq", [&] { return CompletionQueue(context); }},
                    {"ibv_create_cq_ex", [&] { return ExtendedCompletionQueue(context); }},
                    {"ibv_query_device_ex", [&] { return DeviceClock(context); }},
                    {"ibv_create_comp_channel", [&] { return CompletionChannel(context); }},
                    {"ibv_alloc_dm", [&] { return DeviceMemory(context, 64); }}});
    const auto endpoint = transport::Endpoint::open(context, Resolver());
    ASSERT_FALSE(endpoint);
    EXPECT_EQ(endpoint.code().value(), EBADF);
    EXPECT_THAT(endpoint.message(), ::testing::HasSubstr("the Context was closed"));
}

TEST_F(ClosedObject, ContextThatWasReleasedOrMovedFromIsRefusedToo) {
    Context released = Context::open_first();
    const Context owner = Context::adopt(released.release());
    Context source = Context::open_first();
    const Context moved = std::move(source);
    expect_refused("Context", {{"ibv_query_device_ex", [&] { return released.attributes(); }},
                               // NOLINTNEXTLINE(bugprone-use-after-move): what this test is about
                               {"ibv_query_device_ex", [&] { return source.attributes(); }}});
}

TEST_F(ClosedObject, DomainIsRefused) {
    const ProtectionDomain pd = closed(ProtectionDomain(context_));
    const UniqueFd dmabuf = testing::make_dmabuf(4096);
    const DeviceMemory dm(context_, 64);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    const QueuePairAddress peer = testing::own_address(context_);
    expect_refused(
        "ProtectionDomain",
        {{"ibv_reg_mr", [&] { return MemoryRegion(pd, memory_.data(), 64); }},
         {"ibv_reg_dmabuf_mr", [&] { return DmaBufMR(pd, {.fd = dmabuf.get(), .length = 4096}); }},
         {"ibv_reg_dm_mr", [&] { return DeviceMemoryMR(pd, dm); }},
         {"register_memory", [&] { return register_memory(pd, Resolver(), memory_.data(), 64); }},
         {"ChunkedRegion", [&] { return ChunkedRegion(pd, Resolver(), address, 64); }},
         {"RegistrationCache", [&] { return RegistrationCache(pd, Resolver()); }},
         {"ibv_create_qp",
          [&] { return QueuePair::prepare(pd, {.send_cq = cq_, .recv_cq = cq_}); }},
         {"ibv_create_srq", [&] { return SharedReceiveQueue(pd); }},
         {"ibv_create_ah", [&] { return AddressHandle(pd, peer, AddressHandleOptions{}); }},
         {"ibv_alloc_mw", [&] { return MemoryWindow(pd, MemoryWindowType::type_1); }},
         {"ibv_alloc_parent_domain", [&] { return ParentDomain(pd); }},
         {"ProtectionDomain::context", [&] { return pd.context().native(); }}});
    const ThreadDomain td = closed(ThreadDomain(context_));
    expect_refused("ThreadDomain", {{"ibv_alloc_parent_domain",
                                     [&] { return ParentDomain(pd_, {.thread_domain = &td}); }}});
    const ParentDomain parent = closed(ParentDomain(pd_));
    expect_refused("ParentDomain", {{"ibv_create_cq_ex", [&] {
                                         return ExtendedCompletionQueue(context_,
                                                                        {.parent_domain = &parent});
                                     }}});
    const XrcDomain xrc = closed(XrcDomain(context_));
    EXPECT_EQ(xrc.native(), nullptr);
    expect_refused("XrcDomain",
                   {{"ibv_create_srq_ex",
                     [&] { return SharedReceiveQueue(pd_, {.xrc_domain = &xrc, .cq = &cq_}); }},
                    {"XrcDomain::context", [&] { return xrc.context().native(); }}});
}

TEST_F(ClosedObject, QueueIsRefused) {
    CompletionQueue cq = closed(CompletionQueue(context_));
    SharedReceiveQueue srq = closed(SharedReceiveQueue(pd_));
    CompletionChannel channel = closed(CompletionChannel(context_));
    expect_refused("CompletionQueue",
                   {{"CompletionQueue::wait", [&] { return cq.wait(found_, 0ms); }},
                    {"ibv_ack_cq_events", [&] { cq.acknowledge_event(); }},
                    {"ibv_resize_cq", [&] { cq.resize(4); }},
                    {"ibv_modify_cq", [&] { cq.moderate(1, 1us); }},
                    {"CompletionQueue::context", [&] { return cq.context().native(); }}});
    expect_refused("send CompletionQueue",
                   {{"ibv_create_qp", [&] { return prepared({.send_cq = cq, .recv_cq = cq_}); }}});
    expect_refused("receive CompletionQueue",
                   {{"ibv_create_qp", [&] { return prepared({.send_cq = cq_, .recv_cq = cq}); }}});
    expect_refused(
        "SharedReceiveQueue",
        {{"ibv_create_qp", [&] { return prepared({.send_cq = cq_, .recv_cq = cq_, .srq = &srq}); }},
         {"ibv_modify_srq", [&] { srq.arm_limit(1); }},
         {"ibv_query_srq", [&] { return srq.attributes(); }}});
    EXPECT_EQ(softverbs_live(SOFTVERBS_QP), 0U);
    expect_refused(
        "CompletionChannel",
        {{"CompletionChannel::wait", [&] { return channel.wait(0ms); }},
         {"CompletionChannel::fd", [&] { return channel.fd(); }},
         {"CompletionChannel::get_event", [&] { return channel.get_event(); }},
         {"ibv_create_cq", [&] { return CompletionQueue(context_, {.channel = &channel}); }},
         {"ibv_create_cq_ex",
          [&] { return ExtendedCompletionQueue(context_, {.channel = &channel}); }}});
}

TEST_F(ClosedObject, QueuePairIsRefused) {
    QueuePair qp = closed(connected());
    PreparedQueuePair unconnected = prepared({.send_cq = cq_, .recv_cq = cq_});
    const QueuePairAddress address = unconnected.address();
    unconnected.close();
    expect_refused("PreparedQueuePair", {{"PreparedQueuePair::protection_domain", [&] {
                                              return unconnected.protection_domain().native();
                                          }}});
    expect_refused("queue pair",
                   {{"ibv_query_qp", [&] { return qp.state(); }},
                    {"ibv_query_qp", [&] { return qp.attributes(); }},
                    {"ibv_query_ece", [&] { return qp.ece(); }},
                    {"ibv_modify_qp", [&] { qp.abort(); }},
                    {"ibv_modify_qp", [&] { qp.modify({}, IBV_QP_STATE); }},
                    {"ibv_modify_qp_rate_limit", [&] { qp.set_rate_limit({}); }},
                    {"ibv_set_ece", [&] { unconnected.set_ece({}); }},
                    {"ibv_modify_qp", [&] { return std::move(unconnected).connect(address); }}});
}

TEST_F(ClosedObject, MemoryIsRefused) {
    MemoryRegion region = closed(MemoryRegion(pd_, memory_.data(), memory_.size()));
    Registration registration =
        closed(register_memory(pd_, Resolver(), memory_.data(), memory_.size()));
    expect_refused(
        "region",
        {{"Region::sge", [&] { return region.sge(); }},
         {"Region::sge", [&] { return region.sge(0, 8); }},
         {"ibv_advise_mr", [&] { region.prefetch(0, 1); }},
         {"Region::protection_domain", [&] { return region.protection_domain().native(); }},
         {"Region::protection_domain", [&] { return registration.protection_domain().native(); }}});
    const MemoryWindow window = closed(MemoryWindow(pd_, MemoryWindowType::type_2));
    expect_refused("MemoryWindow", {{"MemoryWindow::protection_domain",
                                     [&] { return window.protection_domain().native(); }}});
    DeviceMemory dm = closed(DeviceMemory(context_, 64));
    EXPECT_EQ(dm.try_copy_in(0, memory_), Status(EBADF));
    EXPECT_EQ(dm.try_copy_out(0, memory_), Status(EBADF));
    expect_refused("DeviceMemory",
                   {{"ibv_memcpy_to_dm", [&] { dm.copy_in(0, memory_); }},
                    {"ibv_reg_dm_mr", [&] { return DeviceMemoryMR(pd_, dm); }},
                    {"DeviceMemory::context", [&] { return dm.context().native(); }}});
}

template <class Memory>
void expect_refused_after_a_move(const std::string& type, Memory source) {
    const Memory moved = std::move(source);
    const std::string domain = type + "::protection_domain";
    const std::string remote = type + "::remote";
    EXPECT_EQ(moved.size(), 1);
    // NOLINTBEGIN(bugprone-use-after-move): what this test is about
    EXPECT_EQ(source.size(), 0);
    EXPECT_EQ(source.native(0), nullptr);
    EXPECT_EQ(source.check(), Status(EBADF));
    expect_refused("registration",
                   {{domain.c_str(), [&] { return source.protection_domain().native(); }},
                    {remote.c_str(), [&] { return source.remote(); }},
                    {"RegisteredMemory::path", [&] { return source.path(); }},
                    {"RegisteredMemory::mapping", [&] { return source.mapping(); }},
                    {"RegisteredMemory::trail", [&] { return source.trail().size(); }},
                    {"RegisteredMemory::exporter", [&] { return source.exporter(); }},
                    {"RegisteredMemory::allocation", [&] { return source.allocation(); }}});
    // NOLINTEND(bugprone-use-after-move)
}

TEST_F(ClosedObject, MemoryThatWasMovedFromIsRefused) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    expect_refused_after_a_move("Registration",
                                register_memory(pd_, Resolver(), memory_.data(), memory_.size()));
    expect_refused_after_a_move("ChunkedRegion",
                                ChunkedRegion(pd_, Resolver(), address, memory_.size()));
}

// The data path has no checks but assertions. Sanitizers do not follow the child process of a death
// test.
#if !defined(RDMABUF_SANITIZED)

using ClosedObjectDeathTest = ClosedObject;

TEST_F(ClosedObjectDeathTest, IsNotUsedOnTheDataPath) {
    const CompletionQueue cq = closed(CompletionQueue(context_));
    EXPECT_DEATH(static_cast<void>(cq.poll(found_)), "CompletionQueue was closed");
    EXPECT_DEATH(static_cast<void>(cq.poll(found_[0])), "CompletionQueue was closed");
    EXPECT_DEATH(static_cast<void>(cq.request_notification()), "CompletionQueue was closed");
    const MemoryRegion region(pd_, memory_.data(), memory_.size());
    const QueuePair qp = closed(connected());
    EXPECT_DEATH(static_cast<void>(qp.post_send(region.sge())), "queue pair was closed");
    EXPECT_DEATH(static_cast<void>(qp.post_recv(region.sge())), "queue pair was closed");
    EXPECT_DEATH(static_cast<void>(qp.batch()), "queue pair was closed");
    EXPECT_DEATH(static_cast<void>(qp.number()), "queue pair was closed");
    const MemoryWindow window = closed(MemoryWindow(pd_, MemoryWindowType::type_2));
    EXPECT_DEATH(static_cast<void>(window.type()), "MemoryWindow was closed");
    EXPECT_DEATH(static_cast<void>(window.rkey()), "MemoryWindow was closed");
    EXPECT_DEATH(static_cast<void>(window.next_rkey()), "MemoryWindow was closed");
    const MemoryRegion gone = closed(MemoryRegion(pd_, memory_.data(), memory_.size()));
    const MemoryWindowBinding binding{.region = gone};
    EXPECT_DEATH(static_cast<void>(binding.native()), "region was closed");
    const QueuePair open = connected();
    MemoryWindow open_window(pd_, MemoryWindowType::type_2);
    MemoryWindow closed_window = closed(MemoryWindow(pd_, MemoryWindowType::type_2));
    const MemoryWindowBinding part{.region = region};
    EXPECT_DEATH(static_cast<void>(qp.post_bind(open_window, part)), "queue pair was closed");
    EXPECT_DEATH(static_cast<void>(open.post_bind(closed_window, part)), "MemoryWindow was closed");
    EXPECT_DEATH(static_cast<void>(open.post_bind(open_window, binding)), "region was closed");
}

TEST_F(ClosedObjectDeathTest, RegistrationThatWasMovedFromHasNoAddress) {
    Registration source = register_memory(pd_, Resolver(), memory_.data(), memory_.size());
    const Registration moved = std::move(source);
    // NOLINTBEGIN(bugprone-use-after-move): what this test is about
    EXPECT_DEATH(static_cast<void>(source.address()), "registration was moved from");
    EXPECT_DEATH(static_cast<void>(source.length()), "registration was moved from");
    EXPECT_DEATH(static_cast<void>(source.iova()), "registration was moved from");
    EXPECT_DEATH(static_cast<void>(source.access()), "registration was moved from");
    // NOLINTEND(bugprone-use-after-move)
}

TEST_F(ClosedObjectDeathTest, ListThatIsFullIsNotExtended) {
    SendList<1> list;
    list.send({});
    EXPECT_DEATH(list.send({}), "the list is full");
}

#endif

} // namespace
} // namespace rdmabuf
