// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>

#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/dmabuf_mr.hpp>
#include <rdmabuf/memory_region.hpp>
#include <rdmabuf/queue_pair.hpp>

#include "softverbs_fixture.hpp"

// On devices of mlx5, the CPU copies small payloads to the address of the request, unless the queue
// pair is created without scatter-to-CQE. softverbs does the same with the profile mlx5.

namespace rdmabuf::testing {
namespace {

constexpr std::size_t length = 8;
constexpr std::byte sent{0x77};

/// A dma-buf whose address is known but cannot be read or written by the CPU, like memory of a GPU.
class DeviceBuffer {
  public:
    DeviceBuffer()
        : fd_(make_dmabuf(page_size())),
          address_(::mmap(nullptr, page_size(), PROT_NONE, MAP_SHARED, fd_.get(), 0)) {
        EXPECT_NE(address_, MAP_FAILED);
    }
    ~DeviceBuffer() { ::munmap(address_, page_size()); }
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;

    [[nodiscard]] DmaBufMR register_on(const ProtectionDomain& pd) const {
        return {pd,
                {.fd = fd_.get(), .offset = 0, .length = page_size()},
                {.access = full_access, .iova = reinterpret_cast<std::uint64_t>(address_)}};
    }
    [[nodiscard]] std::array<std::byte, length> content() const {
        std::array<std::byte, length> bytes{};
        EXPECT_EQ(::pread(fd_.get(), bytes.data(), length, 0), ssize_t{length});
        return bytes;
    }

  private:
    UniqueFd fd_;
    void* address_;
};

class ScatterToCqe : public SoftverbsTest {
  protected:
    ScatterToCqe() {
        EXPECT_EQ(softverbs_reset("mlx5", 1), 0);
        basics_.emplace();
        source_.fill(sent);
        source_region_.emplace(basics_->pd, source_.data(), source_.size(),
                               MemoryRegionOptions{.access = full_access});
        receives_.emplace(basics_->context);
    }
    [[nodiscard]] QueuePairOptions options() const {
        return {.send_cq = basics_->cq, .recv_cq = *receives_};
    }
    [[nodiscard]] QueuePair connect(const QueuePairOptions& options) const {
        return connect_to_itself(QueuePair::prepare(basics_->pd, options));
    }
    static void expect_completion(const CompletionQueue& cq) {
        WorkCompletion completion{};
        ASSERT_EQ(cq.wait({&completion, 1}, std::chrono::seconds(20)), 1U);
        EXPECT_TRUE(succeeded(completion)) << describe(completion);
    }
    void send(const QueuePair& qp, const ibv_sge& into) const {
        ASSERT_TRUE(qp.post_recv(into));
        ASSERT_TRUE(qp.post_send(source_region_->sge(0, length)));
        expect_completion(basics_->cq);
    }

    std::optional<Basics> basics_;
    std::optional<CompletionQueue> receives_;
    std::array<std::byte, length> source_{};
    std::optional<MemoryRegion> source_region_;
};

TEST_F(ScatterToCqe, SmallMessageIsReceivedIntoMemoryThatTheCpuCannotWrite) {
    const DeviceBuffer buffer;
    const DmaBufMR region = buffer.register_on(basics_->pd);
    for (const ExtendedInterface extended : {ExtendedInterface::off, ExtendedInterface::required}) {
        QueuePairOptions wanted = options();
        wanted.extended = extended;
        const QueuePair qp = connect(wanted);
        EXPECT_EQ(qp.extended(), extended == ExtendedInterface::required);
        send(qp, region.sge(0, length));
        expect_completion(*receives_);
        EXPECT_EQ(buffer.content(), source_);
    }
}

TEST_F(ScatterToCqe, SmallMessageIsReceivedIntoMemoryOfTheNic) {
    const DeviceMemory memory(basics_->context, 64);
    const DeviceMemoryMR region(basics_->pd, memory, {.access = full_access});
    const QueuePair qp = connect(options());
    send(qp, region.sge(0, length));
    expect_completion(*receives_);
    std::array<std::byte, length> content{};
    memory.copy_out(0, content);
    EXPECT_EQ(content, source_);
}

TEST_F(ScatterToCqe, SmallReadReturnsDataToMemoryThatTheCpuCannotWrite) {
    const DeviceBuffer buffer;
    const DmaBufMR region = buffer.register_on(basics_->pd);
    QueuePairOptions wanted = options();
    wanted.signal_all = true;
    const QueuePair qp = connect(wanted);
    ASSERT_TRUE(qp.post_read(region.sge(0, length), source_region_->remote().at(0)));
    expect_completion(basics_->cq);
    EXPECT_EQ(buffer.content(), source_);
}

TEST_F(ScatterToCqe, OptionLetsTheCpuCopySmallMessages) {
    std::array<std::byte, length> target{};
    const MemoryRegion region(basics_->pd, target.data(), target.size(), {.access = full_access});
    QueuePairOptions wanted = options();
    wanted.scatter_to_cqe = true;
    const QueuePair qp = connect(wanted);
    send(qp, region.sge(0, length));
    EXPECT_NE(target, source_); // the data is in the completion entry
    expect_completion(*receives_);
    EXPECT_EQ(target, source_);
}

} // namespace
} // namespace rdmabuf::testing
