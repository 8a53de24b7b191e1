// SPDX-License-Identifier: BSD-3-Clause
#include <linux/dma-buf.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include <gmock/gmock.h>

#include <rdmabuf/exporter.hpp>
#include <rdmabuf/providers/dma_heap.hpp>

#include "fails_with.hpp"
#include "fake_kernel.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Bytes = std::vector<std::byte>;

class BufferCopy : public ::testing::Test {
  protected:
    FakeKernel kernel;
    const Buffer buffer = [this] {
        kernel.add_heap("system");
        return make_dma_heap_exporter()->allocate(2 * page_size());
    }();
};

TEST_F(BufferCopy, IsBracketedAsTheCpusAccessIs) {
    Bytes bytes(16);
    buffer.copy_in(0, bytes);
    buffer.copy_out(0, bytes);
    EXPECT_THAT(
        kernel.syncs(),
        ElementsAre(DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE, DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE,
                    DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ));
}

TEST_F(BufferCopy, OfNothingAsksTheKernelForNothing) {
    buffer.copy_in(buffer.size(), {});
    buffer.copy_out(buffer.size(), {});
    EXPECT_THAT(kernel.syncs(), IsEmpty());
}

TEST_F(BufferCopy, TellsWhyTheKernelRefusesIt) {
    Bytes bytes(8);
    kernel.fail_syncs({ENODEV, EIO});
    const auto in = error_of([&] { buffer.copy_in(0, bytes); });
    const auto out = error_of([&] { buffer.copy_out(0, bytes); });
    ASSERT_TRUE(in && out);
    EXPECT_EQ(in->error(), ENODEV);
    EXPECT_EQ(out->error(), EIO);
    EXPECT_STREQ(in->function(), "ioctl(DMA_BUF_IOCTL_SYNC)");
}

/// Memory that the CPU has no mapping of.
class Unmapped : public Buffer::Memory {
  public:
    [[nodiscard]] std::uintptr_t address() const noexcept override { return 0x1000; }
    [[nodiscard]] std::size_t size() const noexcept override { return 64; }
    [[nodiscard]] std::span<std::byte> mapping() const noexcept override { return {}; }
    [[nodiscard]] int sync_fd() const noexcept override { return -1; }
};

/// The same, with a way of its own.
class Reached final : public Unmapped {
  public:
    explicit Reached(Bytes& bytes) : bytes_(bytes) {}
    void copy_in(std::size_t offset, std::span<const std::byte> source) override {
        std::ranges::copy(source, bytes_.begin() + static_cast<std::ptrdiff_t>(offset));
    }
    void copy_out(std::size_t offset, std::span<std::byte> destination) const override {
        std::ranges::copy(std::span(bytes_).subspan(offset, destination.size()),
                          destination.begin());
    }

  private:
    Bytes& bytes_;
};

TEST(BufferCopyWithoutAMapping, IsRefusedWhereThereIsNoOtherWay) {
    const Buffer buffer(std::make_unique<Unmapped>());
    Bytes bytes(4);
    for (const auto& error : {error_of([&] { buffer.copy_in(0, bytes); }),
                              error_of([&] { buffer.copy_out(0, bytes); })}) {
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), ENOTSUP);
        EXPECT_THAT(error->hint(), HasSubstr("no mapping"));
    }
}

TEST(BufferCopyWithoutAMapping, GoesTheWayThatTheMemoryHas) {
    Bytes memory(64);
    const Buffer buffer(std::make_unique<Reached>(memory));
    const Bytes written = pattern(20, 3);
    buffer.copy_in(40, written);
    EXPECT_EQ(Bytes(memory.begin() + 40, memory.begin() + 60), written);
    Bytes read(20);
    buffer.copy_out(40, read);
    EXPECT_EQ(read, written);
    EXPECT_THAT(error_of([&] { buffer.copy_in(45, written); }), fails_with(ERANGE));
}

} // namespace
} // namespace rdmabuf::testing
