// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include <gtest/gtest.h>

#include "pair_test.hpp"

namespace {

using namespace softverbs_test;

struct Unimport {
    void operator()(ibv_pd* pd) const { ibv_unimport_pd(pd); }
    void operator()(ibv_mr* mr) const { ibv_unimport_mr(mr); }
};
template <class Object>
using Imported = std::unique_ptr<Object, Unimport>;

class ImportTest : public PairTest {
  protected:
    UniqueContext import_context() const {
        UniqueContext imported(ibv_import_device(::dup(context->cmd_fd)));
        EXPECT_NE(imported, nullptr);
        return imported;
    }

    /// Replaces the queue pair of side a by one with objects of another context.
    void make_a_with(ibv_context* other, ibv_pd* domain) {
        a.qp.reset();
        a.cq.reset(ibv_create_cq(other, 16, nullptr, nullptr, 0));
        ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, a.cq.get());
        init.pd = domain;
        a.qp.reset(ibv_create_qp_ex(other, &init));
        ASSERT_NE(a.qp, nullptr);
    }

    std::array<std::byte, 64> buffer_{};
};

TEST_F(ImportTest, AContextIsOfTheSameDeviceAndOwnsTheDescriptor) {
    const int fd = ::dup(context->cmd_fd);
    UniqueContext imported(ibv_import_device(fd));
    ASSERT_NE(imported, nullptr);
    EXPECT_EQ(imported->device, context->device);
    EXPECT_EQ(imported->cmd_fd, fd);
    EXPECT_NE(imported->async_fd, context->async_fd);
    imported.reset();
    EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
    EXPECT_GE(::fcntl(context->cmd_fd, F_GETFD), 0);
}

TEST_F(ImportTest, AQueuePairOfAnImportedDomainUsesTheRegionsOfTheOriginal) {
    make();
    const UniqueContext other = import_context();
    const Imported<ibv_pd> domain(ibv_import_pd(other.get(), pd->handle));
    ASSERT_NE(domain, nullptr);
    EXPECT_EQ(domain->context, other.get());
    EXPECT_EQ(domain->handle, pd->handle);
    const Imported<ibv_mr> region(ibv_import_mr(domain.get(), a.mr->handle));
    ASSERT_NE(region, nullptr);
    EXPECT_EQ(region->lkey, a.mr->lkey);
    EXPECT_EQ(region->rkey, a.mr->rkey);
    EXPECT_EQ(region->length, a.mr->length);
    EXPECT_EQ(region->addr, nullptr);
    make_a_with(other.get(), domain.get());
    join();
    a.fill(std::byte{0x5a});
    b.fill(std::byte{0});
    ASSERT_EQ(post(a, {a, b, IBV_WR_RDMA_WRITE, 1, 4096}), 0);
    expect(a, 1, IBV_WC_SUCCESS);
    EXPECT_EQ(b.memory[4095], std::byte{0x5a});
    EXPECT_EQ(b.memory[4096], std::byte{0});
    a.qp.reset();
    a.cq.reset();
}

TEST_F(ImportTest, ADomainCannotBeDeallocatedWhileAnImportHasQueuePairs) {
    make();
    b.qp.reset();
    const UniqueContext other = import_context();
    const Imported<ibv_pd> domain(ibv_import_pd(other.get(), pd->handle));
    make_a_with(other.get(), domain.get());
    a.mr.reset();
    b.mr.reset();
    EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
    a.qp.reset();
    a.cq.reset();
    EXPECT_EQ(ibv_dealloc_pd(pd.release()), 0);
    errno = 0;
    EXPECT_EQ(ibv_import_pd(other.get(), domain->handle), nullptr);
    EXPECT_EQ(errno, ENOENT);
    expected_violations = 1;
}

TEST_F(ImportTest, HandlesOfAnIndependentContextAreENOENT) {
    const UniqueContext other(ibv_open_device(context->device));
    errno = 0;
    EXPECT_EQ(ibv_import_pd(other.get(), pd->handle), nullptr);
    EXPECT_EQ(errno, ENOENT);
}

TEST_F(ImportTest, AnImporterThatOverwritesTheTableDoesNotHarmItsOwner) {
    const off_t size = ::lseek(context->cmd_fd, 0, SEEK_END);
    ASSERT_GT(size, 0);
    const auto length = static_cast<std::size_t>(size);
    void* const table =
        ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, context->cmd_fd, 0);
    ASSERT_NE(table, MAP_FAILED);
    const auto register_and_deregister = [this] {
        for (int count = 0; count < 4; ++count) {
            const UniqueMr mr = make_mr(buffer_.data(), buffer_.size());
        }
    };
    register_and_deregister();         // leaves free entries
    constexpr std::size_t header = 24; // what the kind, the device and the owner of the table are
    std::memset(static_cast<std::byte*>(table) + header, 0x5a, length - header);
    register_and_deregister();
    EXPECT_EQ(::munmap(table, length), 0);
}

TEST_F(ImportTest, ADescriptorOfSomethingElseIsRefusedAndStaysOpen) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    EXPECT_EQ(ibv_import_device(fd), nullptr);
    EXPECT_GE(::fcntl(fd, F_GETFD), 0);
    ::close(fd);
    EXPECT_EQ(ibv_import_device(-1), nullptr);
}

TEST(VendorId, IsSetInEveryProfile) {
    for (const char* const profile :
         {"default", "mlx5", "efa", "bnxt", "irdma", "rxe", "old-kernel", "small-mr"}) {
        ASSERT_EQ(softverbs_reset(profile, 0), 0);
        ibv_device_attr_ex attributes{};
        ASSERT_EQ(softverbs_get_device_attr(0, &attributes), 0);
        EXPECT_NE(attributes.orig_attr.vendor_id, 0U) << profile;
    }
    softverbs_reset(nullptr, 0);
}

} // namespace
