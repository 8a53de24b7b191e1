// SPDX-License-Identifier: BSD-3-Clause
// Proves the contents of the arguments, by the layouts of the kernel's headers; not what a kernel
// or a NIC does with them.
#include <linux/netlink.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/zero_copy_receive.hpp>

#include "foreign_types.hpp"
#include "support.hpp"

namespace rdmabuf {
namespace {

using testing::page_size;

class ZeroCopyReceive : public ::testing::Test {
  protected:
    std::shared_ptr<Allocator> exporter_ = make_memfd_exporter();
    Buffer buffer_ = exporter_->allocate(4 * page_size());
    ExportedRange whole_ = exporter_->export_range(buffer_.address(), buffer_.size());
    ExportedRange part_ = exporter_->export_range(buffer_.address(), page_size());
    ExportedRange inside_ =
        exporter_->export_range(buffer_.address() + page_size(), 3 * page_size());
};

TEST_F(ZeroCopyReceive, FillsAnAreaWithTheWholeDmaBuf) {
    foreign::ZcrxAreaReg area{};
    std::memset(&area, 0xff, sizeof area);
    EXPECT_EQ(adapters::fill_zcrx_area(whole_, area).error(), 0);
    EXPECT_EQ(area.addr, 0U);
    EXPECT_EQ(area.len, 4 * page_size());
    EXPECT_EQ(area.rq_area_token, 0U);
    EXPECT_EQ(area.flags, 1U);
    EXPECT_EQ(area.dmabuf_fd, static_cast<std::uint32_t>(whole_.fd()));
    EXPECT_THAT(area.reserved, ::testing::ElementsAre(0, 0));
}

TEST_F(ZeroCopyReceive, RefusesAPartOfADmaBufBecauseTheNicWouldWriteToTheRest) {
    foreign::ZcrxAreaReg area{};
    area.len = 1;
    EXPECT_EQ(adapters::fill_zcrx_area(part_, area).error(), EINVAL);
    EXPECT_EQ(adapters::fill_zcrx_area(inside_, area).error(), EINVAL);
    EXPECT_EQ(adapters::fill_zcrx_area({.fd = -1, .length = page_size()}, area).error(), EBADF);
    EXPECT_EQ(area.len, 1U);
    std::array<std::byte, 64> message{};
    const std::array queues{0U};
    EXPECT_EQ(adapters::write_devmem_binding(part_, 1, queues, message).error(), EINVAL);
    EXPECT_EQ(adapters::write_devmem_binding(inside_, 1, queues, message).error(), EINVAL);
}

TEST_F(ZeroCopyReceive, FindsReceivedDataByTheOffsetWithoutTheNumberOfTheArea) {
    constexpr std::uint64_t area_3 = std::uint64_t{3} << 48;
    EXPECT_EQ(adapters::zcrx_address(whole_, area_3 | 0x2010), buffer_.address() + 0x2010);
    EXPECT_EQ(adapters::devmem_address(whole_, 0x1008), buffer_.address() + 0x1008);
}

struct Attribute {
    nlattr header;
    std::uint32_t value;
};

TEST_F(ZeroCopyReceive, BindsTheDmaBufToEachReceiveQueue) {
    const std::array queues{5U, 9U};
    std::vector<std::byte> message(adapters::devmem_binding_size(queues.size()));
    ASSERT_EQ(message.size(), 56U);
    ASSERT_EQ(adapters::write_devmem_binding(whole_, 7, queues, message).error(), 0);

    const auto expect = [&](std::size_t at, unsigned type, std::uint32_t value) {
        Attribute found{};
        std::memcpy(&found, message.data() + at, sizeof found);
        EXPECT_EQ(found.header.nla_len, 8U) << at;
        EXPECT_EQ(found.header.nla_type, type) << at;
        EXPECT_EQ(found.value, value) << at;
    };
    expect(0, 1, 7);
    expect(8, 3, static_cast<std::uint32_t>(whole_.fd()));
    for (std::size_t i = 0; i != queues.size(); ++i) {
        const std::size_t begin = 16 + 20 * i;
        nlattr nested{};
        std::memcpy(&nested, message.data() + begin, sizeof nested);
        EXPECT_EQ(nested.nla_len, 20U);
        EXPECT_EQ(nested.nla_type, 2U | NLA_F_NESTED);
        expect(begin + 4, 1, queues[i]);
        expect(begin + 12, 3, 0);
    }
}

TEST_F(ZeroCopyReceive, WritesNoBindingThatIsTooLongOrHasNoQueue) {
    const std::array queues{0U};
    std::array<std::byte, 36> message{};
    const auto short_by_one = std::span(message).first(35);
    EXPECT_EQ(adapters::write_devmem_binding(whole_, 1, queues, short_by_one).error(), EMSGSIZE);
    EXPECT_EQ(adapters::write_devmem_binding(whole_, 1, {}, message).error(), EINVAL);
    EXPECT_EQ(message, (std::array<std::byte, 36>{}));
    EXPECT_EQ(adapters::write_devmem_binding(whole_, 1, queues, message).error(), 0);
}

} // namespace
} // namespace rdmabuf
