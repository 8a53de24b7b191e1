// SPDX-License-Identifier: BSD-3-Clause
// Inline data from memory that the CPU can and cannot read.
#undef NDEBUG // The requests are made in this file, and have their assertion in every build.
#include <sys/mman.h>

#include <cerrno>

#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/rdmabuf.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf::testing {
namespace {

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

// Sanitizers do not follow the child process of a death test.
#if !defined(RDMABUF_SANITIZED)

constexpr WorkOptions inlined{.flags = SendFlags::signaled | SendFlags::inline_data};

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

#endif

} // namespace
} // namespace rdmabuf::testing
