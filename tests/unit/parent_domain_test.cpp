// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <utility>

#include <rdmabuf/extended_completion_queue.hpp>
#include <rdmabuf/parent_domain.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/shared_receive_queue.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::error_of;
using testing::fails_with;
using testing::SoftverbsTest;

class ParentDomainTest : public SoftverbsTest {
  protected:
    std::optional<Context> context_ = Context::open_first();
    std::optional<ProtectionDomain> pd_ = ProtectionDomain(*context_);
};

TEST_F(ParentDomainTest, GivesItsQueuePairsTheRegionsOfTheProtectionDomain) {
    const ThreadDomain td(*context_);
    const ParentDomain parent(*pd_, {.thread_domain = &td});
    const ExtendedCompletionQueue cq(*context_, {.parent_domain = &parent});
    const QueuePair qp =
        testing::connect_to_itself(QueuePair::prepare(parent, {.send_cq = cq, .recv_cq = cq}));
    EXPECT_EQ(parent.context(), *context_);
    EXPECT_EQ(td.context(), *context_);
    EXPECT_EQ(qp.native()->pd, parent.native());
    EXPECT_NE(parent, *pd_);
    std::array<std::byte, 16> memory{std::byte{1}};
    const MemoryRegion region(*pd_, memory.data(), memory.size(), {.access = full_access});
    ASSERT_TRUE(qp.post_write(region.sge(0, 8), region.remote().at(8), {.wr_id = 5}));
    WorkCompletion completion{};
    ASSERT_EQ(cq.wait({&completion, 1}, std::chrono::seconds(20)), 1U);
    EXPECT_TRUE(succeeded(completion)) << describe(completion);
    EXPECT_EQ(memory[8], std::byte{1});
}

TEST_F(ParentDomainTest, SurvivesItsHandlesInTheQueuesCreatedWithIt) {
    auto td = std::make_optional<ThreadDomain>(*context_);
    auto parent =
        std::make_optional<ParentDomain>(*pd_, ParentDomainOptions{.thread_domain = &*td});
    auto cq = std::make_optional<ExtendedCompletionQueue>(
        *context_, ExtendedCompletionQueueOptions{.parent_domain = &*parent});
    auto srq = std::make_optional<SharedReceiveQueue>(*parent);
    EXPECT_THAT(error_of([&] { td->close(); }), fails_with("ibv_dealloc_td", EBUSY, "still exist"));
    EXPECT_THAT(error_of([&] { pd_->close(); }),
                fails_with("ibv_dealloc_pd", EBUSY, "still exist"));
    EXPECT_THAT(error_of([&] { parent->close(); }),
                fails_with("ibv_dealloc_pd", EBUSY, "still exist"));
    td.reset();
    parent.reset();
    pd_.reset();
    context_.reset();
    EXPECT_EQ(softverbs_live(SOFTVERBS_TD), 1U);
    EXPECT_EQ(softverbs_live(SOFTVERBS_PD), 2U);
    srq.reset();
    EXPECT_EQ(softverbs_live(SOFTVERBS_TD), 1U);
    cq.reset();
    EXPECT_EQ(softverbs_live(SOFTVERBS_TD), 0U);
    EXPECT_EQ(softverbs_live(SOFTVERBS_PD), 0U);
    EXPECT_EQ(softverbs_live(SOFTVERBS_CONTEXT), 0U);
}

/// The calls of an allocator.
struct Allocations {
    unsigned allocated = 0;
    unsigned freed = 0;
};

void* allocate(ibv_pd* /*pd*/, void* context, std::size_t size, std::size_t alignment,
               std::uint64_t /*type*/) {
    ++static_cast<Allocations*>(context)->allocated;
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
void release(ibv_pd* /*pd*/, void* context, void* memory, std::uint64_t /*type*/) {
    ++static_cast<Allocations*>(context)->freed;
    std::free(memory);
}

TEST_F(ParentDomainTest, AllocatesTheMemoryOfQueues) {
    Allocations allocations;
    const ParentDomain parent(*pd_,
                              {.alloc = allocate, .free = release, .pd_context = &allocations});
    const CompletionQueue cq(*context_);
    {
        const PreparedQueuePair qp = QueuePair::prepare(parent, {.send_cq = cq, .recv_cq = cq});
        EXPECT_GE(allocations.allocated, 1U);
        EXPECT_EQ(allocations.freed, 0U);
    }
    EXPECT_EQ(allocations.freed, allocations.allocated);
}

TEST_F(ParentDomainTest, NeedsBothFunctionsOfAnAllocator) {
    EXPECT_THAT(error_of([&] { ParentDomain(*pd_, {.alloc = allocate}); }),
                fails_with("ibv_alloc_parent_domain", EINVAL, "only one of alloc and free is set"));
    EXPECT_THAT(error_of([&] { ParentDomain(*pd_, {.free = release}); }),
                fails_with("ibv_alloc_parent_domain", EINVAL, "only one of alloc and free is set"));
}

TEST_F(ParentDomainTest, OfAnotherContextIsRefused) {
    const Context other = Context::open_first();
    const ThreadDomain td(other);
    EXPECT_THAT(error_of([&] { ParentDomain(*pd_, {.thread_domain = &td}); }),
                fails_with("ibv_alloc_parent_domain", EINVAL, "soft0"));
    EXPECT_EQ(softverbs_live(SOFTVERBS_PD), 1U);
}

TEST_F(ParentDomainTest, NeedsAProviderThatHasThem) {
    testing::fail_next("ibv_alloc_td", EOPNOTSUPP);
    EXPECT_THAT(
        error_of([&] { const ThreadDomain td(*context_); }),
        fails_with("ibv_alloc_td", EOPNOTSUPP, "the provider of soft0 has no thread domains"));
    testing::fail_next("ibv_alloc_parent_domain", EOPNOTSUPP);
    EXPECT_THAT(error_of([&] { const ParentDomain parent(*pd_); }),
                fails_with("ibv_alloc_parent_domain", EOPNOTSUPP,
                           "the provider of soft0 has no parent domains"));
}

} // namespace
} // namespace rdmabuf
