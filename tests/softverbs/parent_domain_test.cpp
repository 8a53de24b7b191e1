// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "pair_test.hpp"

namespace {

using namespace softverbs_test;

using UniqueTd = std::unique_ptr<ibv_td, Destroyer<ibv_dealloc_td>>;

/// The calls of the allocators of a parent domain.
struct Allocations {
    struct One {
        void* memory;
        std::size_t size;
        std::size_t alignment;
        std::uint64_t type;
    };
    std::vector<One> live;
    std::size_t allocated = 0;
    ibv_pd* domain = nullptr;
    bool fails = false;
    bool uses_default = false;
};

void* allocate(ibv_pd* domain, void* context, std::size_t size, std::size_t alignment,
               std::uint64_t type) {
    auto& allocations = *static_cast<Allocations*>(context);
    EXPECT_EQ(domain, allocations.domain);
    // An allocator may call verbs.
    ibv_device_attr attributes{};
    EXPECT_EQ(ibv_query_device(domain->context, &attributes), 0);
    if (allocations.fails) {
        return nullptr;
    }
    if (allocations.uses_default) {
        return IBV_ALLOCATOR_USE_DEFAULT;
    }
    void* const memory = ::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    allocations.live.push_back({memory, size, alignment, type});
    ++allocations.allocated;
    return memory;
}

void release(ibv_pd* domain, void* context, void* memory, std::uint64_t type) {
    auto& allocations = *static_cast<Allocations*>(context);
    EXPECT_EQ(domain, allocations.domain);
    ibv_device_attr attributes{};
    EXPECT_EQ(ibv_query_device(domain->context, &attributes), 0);
    const auto found = std::ranges::find(allocations.live, memory, &Allocations::One::memory);
    ASSERT_NE(found, allocations.live.end());
    EXPECT_EQ(found->type, type);
    allocations.live.erase(found);
    ::free(memory);
}

class ParentDomain : public PairTest {
  protected:
    [[nodiscard]] UniqueTd make_td() const {
        ibv_td_init_attr attr{};
        UniqueTd td(ibv_alloc_td(context.get(), &attr));
        EXPECT_NE(td, nullptr);
        return td;
    }
    [[nodiscard]] UniquePd make_domain(ibv_td* td = nullptr) const {
        ibv_parent_domain_init_attr attr{};
        attr.pd = pd.get();
        attr.td = td;
        UniquePd domain(ibv_alloc_parent_domain(context.get(), &attr));
        EXPECT_NE(domain, nullptr);
        return domain;
    }
    [[nodiscard]] UniquePd make_domain(Allocations& allocations) const {
        ibv_parent_domain_init_attr attr{};
        attr.pd = pd.get();
        attr.comp_mask =
            IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
        attr.alloc = allocate;
        attr.free = release;
        attr.pd_context = &allocations;
        UniquePd domain(ibv_alloc_parent_domain(context.get(), &attr));
        EXPECT_NE(domain, nullptr);
        allocations.domain = domain.get();
        return domain;
    }
    ibv_cq_ex* make_cq_of(ibv_pd* domain) {
        ibv_cq_init_attr_ex attr{};
        attr.cqe = 4;
        attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
        attr.parent_domain = domain;
        errno = 0;
        return ibv_create_cq_ex(context.get(), &attr);
    }
    int error_of(ibv_parent_domain_init_attr attr) {
        errno = 0;
        ibv_pd* const made = ibv_alloc_parent_domain(context.get(), &attr);
        if (made != nullptr) {
            EXPECT_EQ(ibv_dealloc_pd(made), 0);
            return 0;
        }
        return errno;
    }
};

TEST_F(ParentDomain, refusesWrongAttributes) {
    ibv_parent_domain_init_attr attr{};
    EXPECT_EQ(error_of(attr), EINVAL); // no protection domain
    attr.pd = pd.get();
    EXPECT_EQ(error_of(attr), 0);
    attr.comp_mask = 1U << 30;
    EXPECT_EQ(error_of(attr), EINVAL);
    ibv_td_init_attr extended{1};
    errno = 0;
    EXPECT_EQ(ibv_alloc_td(context.get(), &extended), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(ParentDomain, keepsItsProtectionDomainAndThreadDomainInUse) {
    UniqueTd td = make_td();
    {
        const UniquePd domain = make_domain(td.get());
        EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
        EXPECT_EQ(ibv_dealloc_td(td.get()), EBUSY);
    }
    expected_violations = 2;
}

TEST_F(ParentDomain, isInUseAsLongAsQueuesAre) {
    const UniquePd domain = make_domain();
    const UniqueCq cq = make_cq(4);
    {
        ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, cq.get());
        init.pd = domain.get();
        const UniqueQp qp = make_qp(init);
        EXPECT_EQ(qp->pd, domain.get());
        EXPECT_EQ(ibv_dealloc_pd(domain.get()), EBUSY);
    }
    {
        const UniqueCq other(ibv_cq_ex_to_cq(make_cq_of(domain.get())));
        ASSERT_NE(other, nullptr);
        EXPECT_EQ(ibv_dealloc_pd(domain.get()), EBUSY);
    }
    expected_violations = 2;
}

TEST_F(ParentDomain, withAThreadDomainMakesACompletionQueueSingleThreaded) {
    const UniqueTd td = make_td();
    const UniquePd domain = make_domain(td.get());
    ibv_cq_ex* const extended = make_cq_of(domain.get());
    ASSERT_NE(extended, nullptr);
    const UniqueCq cq(ibv_cq_ex_to_cq(extended));
    ibv_wc wc{};
    ASSERT_EQ(softverbs_complete(cq.get(), &wc), 0);
    ibv_poll_cq_attr poll{};
    ASSERT_EQ(ibv_start_poll(extended, &poll), 0);
    // Without the thread domain, this call would wait for the end of the first one.
    EXPECT_EQ(ibv_start_poll(extended, &poll), ENOENT);
    expected_violations = 1;
}

TEST_F(ParentDomain, withAThreadDomainLeavesACompletionQueueOfMlx5ToAllThreads) {
    use("mlx5");
    const UniqueTd td = make_td();
    const UniquePd domain = make_domain(td.get());
    ibv_cq_ex* const extended = make_cq_of(domain.get());
    ASSERT_NE(extended, nullptr);
    const UniqueCq cq(ibv_cq_ex_to_cq(extended));
    ibv_wc wc{};
    ASSERT_EQ(softverbs_complete(cq.get(), &wc), 0);
    ibv_poll_cq_attr poll{};
    ASSERT_EQ(ibv_start_poll(extended, &poll), 0);
    std::thread other([&] { EXPECT_EQ(ibv_start_poll(extended, &poll), ENOENT); });
    EXPECT_TRUE(eventually([] { return is_at_rest(::getpid()); })); // `other` waits
    ibv_end_poll(extended);
    other.join();
}

TEST_F(ParentDomain, isWhatACompletionQueueNeedsInPlaceOfAProtectionDomain) {
    EXPECT_EQ(make_cq_of(pd.get()), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(ParentDomain, sharesTheRegionsOfItsProtectionDomain) {
    const UniquePd domain = make_domain();
    // The queue pair uses the parent domain, and the region uses the protection domain.
    make(IBV_QPT_RC, [&](ibv_qp_init_attr_ex& init) { init.pd = domain.get(); });
    join();
    a.fill(std::byte{7});
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_RDMA_WRITE, 1, 1000)), 0);
    expect(a, 1, IBV_WC_SUCCESS);
    EXPECT_EQ(b.memory[999], std::byte{7});
    EXPECT_EQ(b.memory[1000], std::byte{0});
    // The queue pair uses the protection domain, and the region uses the parent domain.
    UniqueMr mr(ibv_reg_mr(domain.get(), a.memory.data(), 64, int{IBV_ACCESS_LOCAL_WRITE}));
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->pd, domain.get());
    Request request(a, b, IBV_WR_RDMA_WRITE, 2, 64);
    request.sge.lkey = mr->lkey;
    ASSERT_EQ(post(a, request), 0);
    expect(a, 2, IBV_WC_SUCCESS);
    mr.reset();
    a.qp.reset();
    b.qp.reset();
}

TEST_F(ParentDomain, givesQueuesTheMemoryOfItsAllocator) {
    Allocations allocations;
    {
        const UniquePd domain = make_domain(allocations);
        make(IBV_QPT_RC, [&](ibv_qp_init_attr_ex& init) { init.pd = domain.get(); });
        ASSERT_EQ(allocations.allocated, 2U);
        for (const auto& allocation : allocations.live) {
            EXPECT_EQ(allocation.type, MLX5DV_RES_TYPE_QP);
            EXPECT_GT(allocation.size, 0U);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(allocation.memory) % allocation.alignment,
                      0U);
        }
        join();
        receive(b, 1, 64);
        a.fill(std::byte{9});
        ASSERT_EQ(post(a, Request(a, b, IBV_WR_SEND, 2, 64)), 0);
        expect(a, 2, IBV_WC_SUCCESS);
        expect(b, 1, IBV_WC_SUCCESS);
        EXPECT_EQ(b.memory[63], std::byte{9});

        ibv_srq_init_attr init{nullptr, {16, 1, 0}};
        UniqueSrq srq(ibv_create_srq(domain.get(), &init));
        ASSERT_NE(srq, nullptr);
        EXPECT_EQ(allocations.live.back().type, MLX5DV_RES_TYPE_SRQ);
        srq.reset();
        a.qp.reset();
        b.qp.reset();
    }
    EXPECT_EQ(allocations.allocated, 3U);
    EXPECT_TRUE(allocations.live.empty());
}

TEST_F(ParentDomain, failsToMakeQueuesWhenItsAllocatorFails) {
    Allocations allocations;
    const UniquePd domain = make_domain(allocations);
    const UniqueCq cq = make_cq(4);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, cq.get());
    init.pd = domain.get();
    allocations.fails = true;
    errno = 0;
    EXPECT_EQ(ibv_create_qp_ex(context.get(), &init), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    allocations.fails = false;
    allocations.uses_default = true;
    EXPECT_NE(make_qp(init), nullptr);
    EXPECT_EQ(allocations.allocated, 0U);
}

TEST_F(ParentDomain, givesTheMemoryBackWhenAQueueCannotBeMade) {
    Allocations allocations;
    const UniquePd domain = make_domain(allocations);
    const UniqueCq cq = make_cq(4);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, cq.get());
    init.pd = domain.get();
    init.cap.max_send_sge = 10'000;
    EXPECT_EQ(ibv_create_qp_ex(context.get(), &init), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(allocations.allocated, 1U);
    EXPECT_TRUE(allocations.live.empty());
}

TEST_F(ParentDomain, regionOfTheWholeAddressSpaceServesAnyMemory) {
    start();
    UniqueMr all(ibv_reg_mr(pd.get(), nullptr, SIZE_MAX, full_access | IBV_ACCESS_ON_DEMAND));
    ASSERT_NE(all, nullptr);
    std::vector<std::byte> from(5000, std::byte{3});
    std::vector<std::byte> to(5000);
    Request request(a, b, IBV_WR_RDMA_WRITE, 1, 5000);
    request.sge = {reinterpret_cast<std::uint64_t>(from.data()), 5000, all->lkey};
    request.wr.wr.rdma = {reinterpret_cast<std::uint64_t>(to.data()), all->rkey};
    ASSERT_EQ(post(a, request), 0);
    expect(a, 1, IBV_WC_SUCCESS);
    EXPECT_EQ(from, to);
    // If the memory is not mapped, the request fails.
    request.wr.wr_id = 2;
    request.wr.wr.rdma.remote_addr = std::uint64_t{1} << 46U;
    ASSERT_EQ(post(a, request), 0);
    expect(a, 2, IBV_WC_REM_ACCESS_ERR);
    all.reset();
}

} // namespace
