// SPDX-License-Identifier: BSD-3-Clause
#include <linux/dma-buf.h>

#include <cerrno>
#include <utility>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/providers/dma_heap.hpp>

#include "fails_with.hpp"
#include "fake_kernel.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t start = DMA_BUF_SYNC_START;
constexpr std::uint64_t end = DMA_BUF_SYNC_END;

class CpuAccessTest : public ::testing::Test {
  protected:
    CpuAccessTest() { kernel.add_heap("system"); }

    FakeKernel kernel;
    std::shared_ptr<Allocator> exporter = make_dma_heap_exporter();
};

TEST_F(CpuAccessTest, StartsAndEndsWithTheSameMode) {
    const Buffer buffer = exporter->allocate(1);
    for (const auto mode : {CpuAccessMode::read, CpuAccessMode::write, CpuAccessMode::read_write}) {
        const CpuAccess access = buffer.cpu_access(mode);
        EXPECT_EQ(access.bytes().size(), buffer.size());
    }
    EXPECT_THAT(kernel.syncs(), ElementsAre(start | DMA_BUF_SYNC_READ, end | DMA_BUF_SYNC_READ,
                                            start | DMA_BUF_SYNC_WRITE, end | DMA_BUF_SYNC_WRITE,
                                            start | DMA_BUF_SYNC_RW, end | DMA_BUF_SYNC_RW));
}

TEST_F(CpuAccessTest, EndsOnceAfterAMove) {
    const Buffer buffer = exporter->allocate(1);
    {
        CpuAccess first = buffer.cpu_access(CpuAccessMode::read);
        const CpuAccess second = std::move(first);
        EXPECT_EQ(second.bytes().size(), buffer.size());
    }
    EXPECT_THAT(kernel.syncs(), ElementsAre(start | DMA_BUF_SYNC_READ, end | DMA_BUF_SYNC_READ));
}

TEST_F(CpuAccessTest, TriesAgainWhenInterruptedOrAskedTo) {
    const Buffer buffer = exporter->allocate(1);
    // Three tries to start, and three to end.
    kernel.fail_syncs({EAGAIN, EINTR, 0, EINTR, EAGAIN, 0});
    {
        const CpuAccess access = buffer.cpu_access(CpuAccessMode::write);
        EXPECT_EQ(kernel.syncs().size(), 3U);
    }
    const auto w = std::uint64_t{DMA_BUF_SYNC_WRITE};
    EXPECT_THAT(kernel.syncs(),
                ElementsAre(start | w, start | w, start | w, end | w, end | w, end | w));
}

TEST_F(CpuAccessTest, TellsWhyItCannotStart) {
    const TeardownFailures teardown;
    const Buffer buffer = exporter->allocate(1);
    kernel.fail_syncs({ENODEV});
    EXPECT_THAT(error_of([&] { const CpuAccess access = buffer.cpu_access(); }),
                fails_with("ioctl(DMA_BUF_IOCTL_SYNC)", ENODEV));
    // What did not start is not ended.
    EXPECT_EQ(kernel.syncs().size(), 1U);
    EXPECT_THAT(TeardownFailures::seen(), IsEmpty());
}

TEST_F(CpuAccessTest, ReportsAnEndThatFails) {
    const TeardownFailures teardown;
    const Buffer buffer = exporter->allocate(1);
    kernel.fail_syncs({0, EIO});
    { const CpuAccess access = buffer.cpu_access(); }
    EXPECT_THAT(TeardownFailures::seen(),
                ElementsAre(TeardownFailures::Failure("ioctl(DMA_BUF_IOCTL_SYNC)", EIO)));
}

TEST_F(CpuAccessTest, NeedsNoCallForMemoryWithoutADmaBuf) {
    std::byte memory[16]{};
    {
        const CpuAccess access(-1, memory, CpuAccessMode::read_write);
        EXPECT_EQ(access.bytes().data(), memory);
    }
    EXPECT_THAT(kernel.syncs(), IsEmpty());
}

} // namespace
} // namespace rdmabuf::testing
