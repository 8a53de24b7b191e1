// SPDX-License-Identifier: BSD-3-Clause
// Inline data from memory that the CPU can and cannot read.
#undef NDEBUG // The requests are made in this file, and have their assertion in every build.
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include <rdmabuf/rdmabuf.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf::testing {
namespace {

constexpr WorkOptions inlined{.flags = SendFlags::signaled | SendFlags::inline_data};

class InlineData : public SoftverbsTest {
  protected:
    Basics basics_;
    QueuePair qp_ = connect_to_itself(QueuePair::prepare(
        basics_.pd, {.send_cq = basics_.cq, .recv_cq = basics_.cq, .max_inline_data = 64}));
};

TEST_F(InlineData, IsReadableInTheMemoryOfTheProgramOnly) {
    const auto readable = [](const void* address, std::uint32_t length) {
        const ibv_sge entry{
            .addr = reinterpret_cast<std::uintptr_t>(address), .length = length, .lkey = 0};
        errno = 5;
        const bool result = detail::cpu_can_read({&entry, 1});
        EXPECT_EQ(errno, 5);
        return result;
    };
    const std::size_t page = page_size();
    auto* const pages = static_cast<std::byte*>(
        ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_EQ(::mprotect(pages + page, page, PROT_NONE), 0);
    EXPECT_TRUE(readable(pages, static_cast<std::uint32_t>(page)));
    EXPECT_TRUE(readable(pages + page - 1, 1));
    EXPECT_FALSE(readable(pages + page - 1, 2));
    EXPECT_FALSE(readable(pages + page, 1));
    EXPECT_TRUE(readable(pages + page, 0));
    EXPECT_FALSE(readable(nullptr, 8));
    EXPECT_TRUE(readable("text", 4));
    ::munmap(pages, 2 * page);
}

TEST_F(InlineData, OfHostMemoryIsWritten) {
    std::array<std::byte, 64> memory{};
    fill(std::span(memory).first(32), 1);
    const MemoryRegion region(basics_.pd, memory.data(), memory.size());
    const MemoryRegion target(basics_.pd, memory.data() + 32, 32, {.access = full_access});
    ASSERT_TRUE(qp_.post_write(region.sge(3, 20), target.remote().at(0), inlined));
    WorkCompletion completion{};
    ASSERT_EQ(basics_.cq.wait({&completion, 1}, std::chrono::seconds(20)), 1);
    EXPECT_TRUE(succeeded(completion)) << describe(completion);
    EXPECT_EQ(std::memcmp(memory.data() + 3, memory.data() + 32, 20), 0);
}

// Sanitizers do not follow the child process of a death test.
#if !defined(RDMABUF_SANITIZED)

using InlineDataDeathTest = InlineData;

TEST_F(InlineDataDeathTest, OfDeviceMemoryIsNotPosted) {
    const DeviceMemory memory(basics_.context, 4096);
    const DeviceMemoryMR region(basics_.pd, memory);
    const ibv_sge entry = region.sge(0, 32);
    const RemoteAddress target{.address = 0, .rkey = region.rkey()};
    constexpr const char* text = "the CPU cannot read the memory of inline data";
    EXPECT_DEATH(static_cast<void>(qp_.post_send(entry, inlined)), text);
    EXPECT_DEATH(static_cast<void>(qp_.post_write(entry, target, inlined)), text);
    SendList<1> list;
    EXPECT_DEATH(list.write({&entry, 1}, target, inlined), text);
    ASSERT_TRUE(qp_.extended());
    EXPECT_DEATH(qp_.batch().send({&entry, 1}, inlined), text);
}

TEST_F(InlineDataDeathTest, OfADmaBufWithoutAnAddressIsNotPosted) {
    const UniqueFd dmabuf = make_dmabuf(4096);
    const DmaBufMR region(basics_.pd, {.fd = dmabuf.get(), .length = 4096});
    EXPECT_DEATH(static_cast<void>(qp_.post_send(region.sge(0, 8), inlined)),
                 "the CPU cannot read the memory of inline data");
}

#endif

} // namespace
} // namespace rdmabuf::testing
