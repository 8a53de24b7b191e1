// SPDX-License-Identifier: BSD-3-Clause
// Each child keeps its parents until it is gone itself. softverbs answers EBUSY to the contrary,
// as the kernel does, and the fixture fails every test in which it did.
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/memory_window.hpp>
#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/xrc_domain.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using testing::fails_with;
using testing::SoftverbsTest;

class Ownership : public SoftverbsTest {
  protected:
    std::optional<Context> context_ = Context::open_first();
    std::optional<ProtectionDomain> pd_ = ProtectionDomain(*context_);
    std::optional<CompletionQueue> cq_ = CompletionQueue(*context_);
    std::array<std::byte, 64> memory_{};

    /// Drops every parent a test does not need any more.
    void drop_parents() {
        cq_.reset();
        pd_.reset();
        context_.reset();
    }
    PreparedQueuePair prepare(const SharedReceiveQueue* srq = nullptr) {
        return QueuePair::prepare(*pd_, {.send_cq = *cq_, .recv_cq = *cq_, .srq = srq});
    }
};

TEST_F(Ownership, DeviceSurvivesItsDeviceListAndContextItsDevice) {
    std::optional<Device> device;
    {
        const DeviceList list;
        device = list.front();
    }
    EXPECT_EQ(device->name(), "soft0");
    const Context opened(*device);
    EXPECT_EQ(opened.device_name(), "soft0");
    device.reset();
    EXPECT_EQ(softverbs_live(SOFTVERBS_LIST), 0U);
    EXPECT_EQ(opened.attributes().firmware_version(), "1.2.3");
}

template <class Object>
std::shared_ptr<void> keep(Object object) {
    return std::make_shared<Object>(std::move(object));
}

/// An object that is made from parents, and what is destroyed once the program has no handles of
/// the parents and then no handle of the object, in order. The recorder has no memory windows.
struct Child {
    const char* name;
    std::function<std::shared_ptr<void>(const testing::Basics&, std::span<std::byte>)> make;
    std::vector<std::string> destroyed;
};

const std::vector<Child> children{
    {"ProtectionDomain",
     [](const auto& of, auto) { return keep(ProtectionDomain(of.context)); },
     {"pd", "context"}},
    {"CompletionQueue",
     [](const auto& of, auto) { return keep(CompletionQueue(of.context)); },
     {"cq", "context"}},
    {"CompletionChannel",
     [](const auto& of, auto) { return keep(CompletionChannel(of.context)); },
     {"channel", "context"}},
    {"DeviceMemory",
     [](const auto& of, auto) { return keep(DeviceMemory(of.context, 64)); },
     {"dm", "context"}},
    {"MemoryRegion",
     [](const auto& of, auto memory) { return keep(MemoryRegion(of.pd, memory.data(), 64)); },
     {"mr", "pd", "context"}},
    {"DmaBufMR",
     [](const auto& of, auto) {
         const UniqueFd fd = testing::make_dmabuf(4096);
         return keep(DmaBufMR(of.pd, {.fd = fd.get(), .length = 4096}));
     },
     {"mr", "pd", "context"}},
    {"DeviceMemoryMR",
     [](const auto& of, auto) { return keep(DeviceMemoryMR(of.pd, DeviceMemory(of.context, 64))); },
     {"mr", "pd", "dm", "context"}},
    {"Registration",
     [](const auto& of, auto memory) {
         return keep(register_memory(of.pd, Resolver(), memory.data(), 64));
     },
     {"mr", "pd", "context"}},
    {"MemoryWindow",
     [](const auto& of, auto) { return keep(MemoryWindow(of.pd, MemoryWindowType::type_2)); },
     {"pd", "context"}},
    {"SharedReceiveQueue",
     [](const auto& of, auto) { return keep(SharedReceiveQueue(of.pd)); },
     {"srq", "pd", "context"}},
    {"AddressHandle",
     [](const auto& of, auto) {
         return keep(AddressHandle(of.pd, testing::own_address(of.context), {}));
     },
     {"ah", "pd", "context"}},
    {"PreparedQueuePair",
     [](const auto& of, auto) {
         return keep(QueuePair::prepare(of.pd, {.send_cq = of.cq, .recv_cq = of.cq}));
     },
     {"qp", "pd", "cq", "context"}},
    {"QueuePair",
     [](const auto& of, auto) {
         return keep(testing::connect_to_itself(
             QueuePair::prepare(of.pd, {.send_cq = of.cq, .recv_cq = of.cq})));
     },
     {"qp", "pd", "cq", "context"}},
};

TEST_F(Ownership, EachObjectIsDestroyedBeforeTheParentsThatItKeeps) {
    drop_parents();
    for (const Child& child : children) {
        auto parents = std::make_optional<testing::Basics>();
        std::shared_ptr<void> object = child.make(*parents, memory_);
        parents.reset();
        testing::forget_calls();
        object.reset();
        EXPECT_EQ(testing::record().destroyed, child.destroyed) << child.name;
    }
}

TEST_F(Ownership, QueuePairSurvivesItsSharedReceiveQueueHandle) {
    auto srq = std::make_optional<SharedReceiveQueue>(*pd_);
    auto prepared = std::make_optional<PreparedQueuePair>(prepare(&*srq));
    EXPECT_THAT(error_of([&] { srq->close(); }),
                fails_with("ibv_destroy_srq", EBUSY, "still exist"));
    srq.reset();
    EXPECT_EQ(softverbs_live(SOFTVERBS_SRQ), 1U);
    prepared.reset();
    EXPECT_THAT(testing::record().destroyed, ElementsAre("list", "qp", "srq"));
}

TEST_F(Ownership, CompletionQueueSurvivesItsChannelHandle) {
    auto channel = std::make_optional<CompletionChannel>(*context_);
    cq_.emplace(*context_, CompletionQueueOptions{.channel = &*channel});
    EXPECT_THAT(error_of([&] { channel->close(); }),
                fails_with("ibv_destroy_comp_channel", EBUSY, "still exist"));
    channel.reset();
    EXPECT_EQ(softverbs_live(SOFTVERBS_CHANNEL), 1U);
    EXPECT_TRUE(cq_->request_notification());
    cq_.reset();
    EXPECT_THAT(testing::record().destroyed, ElementsAre("list", "cq", "cq", "channel"));
}

// Closing and releasing

TEST_F(Ownership, ParentInUseIsBusyAndStaysUsable) {
    auto region = std::make_optional<MemoryRegion>(*pd_, memory_.data(), 8);
    EXPECT_THAT(error_of([&] { pd_->close(); }),
                fails_with("ibv_dealloc_pd", EBUSY, "destroy them"));
    EXPECT_THAT(error_of([&] { context_->close(); }), fails_with("ibv_close_device", EBUSY, ""));
    EXPECT_NO_THROW(MemoryRegion(*pd_, memory_.data(), 8));
    region.reset();
    pd_->close();
    EXPECT_EQ(softverbs_live(SOFTVERBS_PD), 0U);
    pd_->close(); // of nothing
}

TEST_F(Ownership, CloseThatFailsKeepsTheRegionAndCanBeRepeated) {
    MemoryRegion region(*pd_, memory_.data(), 8);
    testing::fail_next("ibv_dereg_mr", EBUSY);
    EXPECT_THAT(error_of([&] { region.close(); }), fails_with("ibv_dereg_mr", EBUSY, ""));
    EXPECT_NE(region.native(), nullptr);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 1U);
    region.close();
    EXPECT_EQ(region.native(), nullptr);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
    region.close();
}

TEST_F(Ownership, ReleaseOfAParentLeavesItsChildrenAlone) {
    ibv_pd* released = nullptr;
    {
        const MemoryRegion region(*pd_, memory_.data(), 8);
        released = pd_->release();
    }
    EXPECT_EQ(softverbs_live(SOFTVERBS_PD), 1U);
    EXPECT_EQ(ibv_dealloc_pd(released), 0);
}

// Objects from elsewhere

/// Releases an object, borrows it, and adopts it with its parents, which destroys it.
template <class Object, class... Parents>
void release_borrow_and_adopt(softverbs_kind kind, Object object, const Parents&... parents) {
    SCOPED_TRACE(kind);
    const std::size_t live = softverbs_live(kind);
    auto* const native = object.release();
    EXPECT_EQ(object.native(), nullptr);
    EXPECT_EQ(Object::borrow(native).native(), native);
    ASSERT_EQ(softverbs_live(kind), live) << "a borrowed object was destroyed";
    Object borrowed = Object::borrow(native);
    borrowed.close();
    EXPECT_EQ(borrowed.native(), nullptr);
    ASSERT_EQ(softverbs_live(kind), live) << "a borrowed object was destroyed";
    EXPECT_EQ(Object::adopt(parents..., native).native(), native);
    EXPECT_EQ(softverbs_live(kind), live - 1);
    EXPECT_EQ(Object::borrow(nullptr).native(), nullptr);
}

TEST_F(Ownership, EachObjectIsReleasedBorrowedAndAdopted) {
    const testing::Basics of;
    release_borrow_and_adopt(SOFTVERBS_CONTEXT, Context::open_first());
    release_borrow_and_adopt(SOFTVERBS_PD, ProtectionDomain(of.context), of.context);
    release_borrow_and_adopt(SOFTVERBS_CQ, CompletionQueue(of.context), of.context);
    release_borrow_and_adopt(SOFTVERBS_XRCD, XrcDomain(of.context), of.context);
    release_borrow_and_adopt(SOFTVERBS_MR, MemoryRegion(of.pd, memory_.data(), 64), of.pd);
    release_borrow_and_adopt(SOFTVERBS_MW, MemoryWindow(of.pd, MemoryWindowType::type_2), of.pd);
    release_borrow_and_adopt(SOFTVERBS_SRQ, SharedReceiveQueue(of.pd), of.pd);
    release_borrow_and_adopt(SOFTVERBS_AH,
                             AddressHandle(of.pd, testing::own_address(of.context), {}), of.pd);
    release_borrow_and_adopt(SOFTVERBS_QP, testing::connect_to_itself(prepare()), *pd_, *cq_, *cq_);
    EXPECT_EQ(ibv_destroy_comp_channel(CompletionChannel(of.context).release()), 0);
}

TEST_F(Ownership, AdoptedObjectsAreDestroyed) {
    {
        const DeviceList list;
        const Context adopted = Context::adopt(ibv_open_device(list.front().native()));
        const ProtectionDomain pd =
            ProtectionDomain::adopt(adopted, ibv_alloc_pd(adopted.native()));
        const CompletionQueue cq = CompletionQueue::adopt(
            adopted, ibv_create_cq(adopted.native(), 4, nullptr, nullptr, 0));
        EXPECT_EQ(softverbs_live(SOFTVERBS_CONTEXT), 2U);
        ibv_srq_init_attr queue{.srq_context = nullptr, .attr = {4, 1, 0}};
        const SharedReceiveQueue srq =
            SharedReceiveQueue::adopt(pd, ibv_create_srq(pd.native(), &queue));
        EXPECT_EQ(srq.attributes().max_wr, 4U);
        const QueuePair qp = QueuePair::adopt(
            pd, cq, cq,
            QueuePair::prepare(pd, {.send_cq = cq, .recv_cq = cq, .srq = &srq}).release());
        EXPECT_EQ(qp.state(), IBV_QPS_INIT);
        EXPECT_EQ(qp.protection_domain(), pd);
    }
    EXPECT_THAT(testing::record().destroyed,
                ElementsAre("list", "qp", "srq", "cq", "pd", "context", "list"));
}

TEST_F(Ownership, MemoryIsBorrowedAndAdopted) {
    testing::Basics of;
    ibv_dm* const dm = DeviceMemory(of.context, 64).release();
    ibv_mr* const mr = MemoryRegion(of.pd, memory_.data(), 64).release();
    {
        const MemoryRegion region = MemoryRegion::borrow(mr, {.access = full_access, .iova = 4096});
        EXPECT_EQ(region.sge(1, 63).addr, 4097U);
        EXPECT_EQ(region.address(), memory_.data());
        EXPECT_EQ(region.access(), full_access);
        EXPECT_EQ(region.protection_domain(), of.pd);
        DeviceMemory device = DeviceMemory::borrow(dm, 64);
        device.copy_in(0, memory_);
        const DeviceMemoryMR of_device(of.pd, device);
        EXPECT_EQ(of_device.length(), 64U);
    }
    EXPECT_EQ(softverbs_live(SOFTVERBS_DM), 1U);
    {
        const MemoryRegion region = MemoryRegion::adopt(of.pd, mr);
        EXPECT_EQ(region.iova(), reinterpret_cast<std::uintptr_t>(memory_.data()));
        const DeviceMemory device = DeviceMemory::adopt(of.context, dm, 64);
        EXPECT_THAT(error_of([&] { of.pd.close(); }),
                    fails_with("ibv_dealloc_pd", EBUSY, "copies"));
    }
    EXPECT_EQ(softverbs_live(SOFTVERBS_DM), 0U);
    EXPECT_EQ(DeviceMemory::borrow(nullptr, 64).native(), nullptr);
    EXPECT_EQ(DeviceMemory::borrow(nullptr, 64).try_copy_in(0, memory_), Status(EBADF));
}

TEST_F(Ownership, BorrowedObjectsAreUsedAsTheirOriginals) {
    const SharedReceiveQueue owned_srq(*pd_);
    const QueuePair owned_qp = testing::connect_to_itself(prepare());
    const XrcDomain owned_xrcd(*context_);
    const AddressHandle owned_ah(*pd_, testing::own_address(*context_), {});
    const ProtectionDomain pd = ProtectionDomain::borrow(pd_->native());
    const CompletionQueue cq = CompletionQueue::borrow(cq_->native());
    const SharedReceiveQueue srq = SharedReceiveQueue::borrow(owned_srq.native());
    const QueuePair qp = QueuePair::borrow(owned_qp.native());
    EXPECT_EQ(Context::borrow(context_->native()), *context_);
    EXPECT_EQ(pd.context().device_name(), "soft0");
    EXPECT_EQ(XrcDomain::borrow(owned_xrcd.native()).context(), *context_);
    EXPECT_EQ(AddressHandle::borrow(owned_ah.native()).destination({}).ah, owned_ah.native());
    EXPECT_EQ(MemoryRegion(pd, memory_.data(), 8).length(), 8U);
    EXPECT_TRUE(srq.post_recv(ibv_sge{}));
    EXPECT_FALSE(qp.extended());
    EXPECT_TRUE(qp.post_send(ibv_sge{}));
    EXPECT_EQ(testing::record().sends.size(), 1U);
    const PreparedQueuePair prepared =
        QueuePair::prepare(pd, {.send_cq = cq, .recv_cq = cq, .srq = &srq});
    EXPECT_EQ(prepared.native()->srq, owned_srq.native());
}

TEST_F(Ownership, EqualHandlesAreThoseOfOneObject) {
    const ProtectionDomain other(*context_);
    EXPECT_EQ(*pd_, ProtectionDomain(*pd_)); // NOLINT(performance-unnecessary-copy-initialization)
    EXPECT_NE(*pd_, other);
    EXPECT_NE(*cq_, CompletionQueue(*context_));
}

} // namespace
} // namespace rdmabuf
