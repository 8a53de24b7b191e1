// SPDX-License-Identifier: BSD-3-Clause
// What libfabric, UCX and NCCL make of the arguments is imitated with the calls of verbs that they
// make; each names its source.
#include <cerrno>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/adapters.hpp>
#include <rdmabuf/dmabuf_mr.hpp>
#include <rdmabuf/memory_region.hpp>
#include <rdmabuf/providers/memfd.hpp>

#include "foreign_types.hpp"
#include "loopback.hpp"
#include "support.hpp"

namespace rdmabuf {
namespace {

using testing::Loopback;
using testing::page_size;

constexpr DmaBufRange range{.fd = 7, .offset = 0x3010, .length = 5000, .address = 0x7f00'0000'5010};

TEST(FiMrDmaBuf, HasWhereTheDmaBufBegins) {
    foreign::FiMrDmaBuf dmabuf{};
    adapters::fill_fi_mr_dmabuf(range, dmabuf);
    EXPECT_EQ(dmabuf.fd, 7);
    EXPECT_EQ(dmabuf.offset, 0x3010U);
    EXPECT_EQ(dmabuf.len, 5000U);
    EXPECT_EQ(dmabuf.base_addr, reinterpret_cast<void*>(0x7f00'0000'2000));
}

TEST(FiMrDmaBuf, HasNoBaseWhereTheRangeHasNoAddress) {
    foreign::FiMrDmaBuf dmabuf{.fd = -1, .offset = 1, .len = 1, .base_addr = &dmabuf};
    adapters::fill_fi_mr_dmabuf({.fd = 0, .offset = 4096, .length = 1}, dmabuf);
    EXPECT_EQ(dmabuf.fd, 0);
    EXPECT_EQ(dmabuf.base_addr, nullptr);
}

TEST(FiMrDmaBuf, LeadsToTheAddressAlsoBelowTheOffset) {
    foreign::FiMrDmaBuf dmabuf{};
    adapters::fill_fi_mr_dmabuf({.fd = 0, .offset = 0x5000, .length = 1, .address = 0x1000},
                                dmabuf);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(dmabuf.base_addr) + dmabuf.offset, 0x1000U);
}

TEST(UctMemRegParams, KeepWhatTheCallerSet) {
    foreign::UctMemRegParams params{};
    params.field_mask = foreign::uct_field_flags;
    params.flags = 0x50;
    params.mem_type = 3;
    adapters::add_to_uct_mem_reg_params(range, params);
    EXPECT_EQ(params.field_mask, foreign::uct_field_flags | foreign::uct_field_dmabuf_fd |
                                     foreign::uct_field_dmabuf_offset);
    EXPECT_EQ(params.flags, 0x50U);
    EXPECT_EQ(params.mem_type, 3);
    EXPECT_EQ(params.dmabuf_fd, 7);
    EXPECT_EQ(params.dmabuf_offset, 0x3010U);
}

TEST(NcclDmaBuf, BeginsWithAPage) {
    const std::uintptr_t page = page_size();
    const adapters::NcclDmaBuf inside = adapters::nccl_dmabuf(
        {.fd = 0, .offset = 5 * page + 24, .length = 2 * page, .address = 9 * page + 24});
    EXPECT_EQ(inside.data, reinterpret_cast<void*>(9 * page));
    EXPECT_EQ(inside.size, 2 * page + 24);
    EXPECT_EQ(inside.offset, 5 * page);
    EXPECT_EQ(inside.fd, 0);
    const adapters::NcclDmaBuf aligned =
        adapters::nccl_dmabuf({.fd = 7, .offset = page, .length = 100, .address = 9 * page});
    EXPECT_EQ(aligned.data, reinterpret_cast<void*>(9 * page));
    EXPECT_EQ(aligned.size, 100U);
    EXPECT_EQ(aligned.offset, page);
    EXPECT_EQ(aligned.fd, 7);
}

void expect_range(const DmaBufRange& found, const DmaBufRange& expected) {
    EXPECT_EQ(found.fd, expected.fd);
    EXPECT_EQ(found.offset, expected.offset);
    EXPECT_EQ(found.length, expected.length);
    EXPECT_EQ(found.address, expected.address);
}

TEST(RangeOf, FiMrDmaBufIsTheRangeThatFilledIt) {
    foreign::FiMrDmaBuf dmabuf{};
    adapters::fill_fi_mr_dmabuf(range, dmabuf);
    expect_range(adapters::range_of_fi_mr_dmabuf(dmabuf), range);
    constexpr DmaBufRange without_address{.fd = 0, .offset = 4096, .length = 1};
    adapters::fill_fi_mr_dmabuf(without_address, dmabuf);
    expect_range(adapters::range_of_fi_mr_dmabuf(dmabuf), without_address);
}

TEST(RangeOf, UctMemRegParamsHasTheFieldsOfTheMaskOnly) {
    void* const address = reinterpret_cast<void*>(range.address);
    foreign::UctMemRegParams params{.field_mask = foreign::uct_field_flags,
                                    .flags = 0,
                                    .dmabuf_fd = 99,
                                    .dmabuf_offset = 98,
                                    .mem_type = 0};
    expect_range(adapters::range_of_uct_mem_reg(address, 5000, params),
                 {.fd = -1, .offset = 0, .length = 5000, .address = range.address});
    adapters::add_to_uct_mem_reg_params(range, params);
    expect_range(adapters::range_of_uct_mem_reg(address, 5000, params), range);
}

TEST(RangeOf, NcclIsRegisteredAtTheAddressThatNcclUses) {
    Loopback net;
    const auto exporter = make_memfd_exporter();
    const Buffer buffer = exporter->allocate(4 * page_size());
    const ExportedRange exported =
        exporter->export_range(buffer.address() + page_size() + 8, page_size());
    const adapters::NcclDmaBuf arguments = adapters::nccl_dmabuf(exported);
    const DmaBufMR region(net.a.pd, adapters::range_of_nccl(arguments));
    EXPECT_EQ(region.iova(), buffer.address() + page_size());
    EXPECT_EQ(region.length(), page_size() + 8);
}

/// Registers as a library does, and says which call it was.
struct Caller {
    const char* name;
    ibv_mr* (*reg)(ibv_pd* pd, const ExportedRange& range);
};

std::ostream& operator<<(std::ostream& out, const Caller& caller) {
    return out << caller.name;
}

constexpr int access_flags =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

ibv_mr* by_libfabric(ibv_pd* pd, const ExportedRange& exported) {
    foreign::FiMrDmaBuf dmabuf{};
    adapters::fill_fi_mr_dmabuf(exported, dmabuf);
    // vrb_mr_reg_common(), prov/verbs/src/verbs_mr.c
    return ibv_reg_dmabuf_mr(pd, dmabuf.offset, dmabuf.len,
                             reinterpret_cast<std::uintptr_t>(dmabuf.base_addr) + dmabuf.offset,
                             dmabuf.fd, access_flags);
}

ibv_mr* by_ucx(ibv_pd* pd, const ExportedRange& exported) {
    foreign::UctMemRegParams params{};
    adapters::add_to_uct_mem_reg_params(exported, params);
    // uct_ib_reg_mr(), src/uct/ib/base/ib_md.c
    return ibv_reg_dmabuf_mr(pd, params.dmabuf_offset, exported.length(), exported.address(),
                             params.dmabuf_fd, access_flags);
}

ibv_mr* by_ucx_data_direct(ibv_pd* pd, const ExportedRange& exported) {
    foreign::UctMemRegParams params{};
    adapters::add_to_uct_mem_reg_params(exported, params);
    // uct_ib_mlx5_direct_nic_reg_mr(), src/uct/ib/mlx5/dv/ib_mlx5dv_md.c, but for mlx5dv
    return ibv_reg_dmabuf_mr(pd, 0, exported.length() + params.dmabuf_offset,
                             exported.address() - params.dmabuf_offset, params.dmabuf_fd,
                             access_flags);
}

/// NCCL's own plugin: ncclIbRegMrDmaBufInternal2(), src/transport/net_ib/reg.cc.
int reg_mr_of_nccl(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                   void** mhandle) {
    EXPECT_EQ(type, foreign::nccl_ptr_cuda);
    const std::uintptr_t page = page_size();
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(data) & -page;
    const std::size_t pages =
        (reinterpret_cast<std::uintptr_t>(data) + size - address + page - 1) / page;
    *mhandle = ibv_reg_dmabuf_mr(static_cast<ibv_pd*>(comm), offset, pages * page, address, fd,
                                 access_flags);
    return *mhandle != nullptr ? 0 : foreign::nccl_system_error;
}

ibv_mr* by_nccl(ibv_pd* pd, const ExportedRange& exported) {
    const foreign::NcclNet net{.regMrDmaBuf = reg_mr_of_nccl};
    void* mhandle = nullptr;
    EXPECT_EQ(adapters::nccl_reg_mr(net, pd, exported, foreign::nccl_ptr_cuda, &mhandle), 0);
    return static_cast<ibv_mr*>(mhandle);
}

TEST(NcclRegMr, ReturnsWhatThePluginSays) {
    const Loopback net;
    const foreign::NcclNet plugin{.regMrDmaBuf = reg_mr_of_nccl};
    void* mhandle = nullptr;
    EXPECT_EQ(adapters::nccl_reg_mr(plugin, net.a.pd.native(),
                                    {.fd = -1, .offset = 0, .length = 1, .address = 0x10000},
                                    foreign::nccl_ptr_cuda, &mhandle),
              foreign::nccl_system_error);
    EXPECT_EQ(mhandle, nullptr);
}

class ForeignRegistration : public ::testing::TestWithParam<Caller> {};

TEST_P(ForeignRegistration, HoldsTheRangeAtItsOwnAddress) {
    Loopback net;
    net.connect();
    const auto exporter = make_memfd_exporter();
    const Buffer buffer = exporter->allocate(8 * page_size());
    const std::size_t begin = 2 * page_size() + 72;
    const std::size_t length = 3 * page_size() + 5;

    ibv_mr* mr = nullptr;
    {
        const ExportedRange exported = exporter->export_range(buffer.address() + begin, length);
        mr = GetParam().reg(net.b.pd.native(), exported);
    } // the registration needs it no more
    ASSERT_NE(mr, nullptr) << std::strerror(errno);

    std::vector<std::byte> bytes = testing::pattern(length, 5);
    const MemoryRegion source(net.a.pd, bytes.data(), bytes.size());
    ASSERT_TRUE(net.a.qp->post_write(
        source.sge(), RemoteAddress{.address = buffer.address() + begin, .rkey = mr->rkey},
        {.wr_id = 1}));
    net.a.expect(1);
    std::vector<std::byte> found(length);
    buffer.copy_out(begin, found);
    EXPECT_TRUE(found == bytes);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

INSTANTIATE_TEST_SUITE_P(Adapters, ForeignRegistration,
                         ::testing::Values(Caller{"libfabric", by_libfabric}, Caller{"ucx", by_ucx},
                                           Caller{"ucx_data_direct", by_ucx_data_direct},
                                           Caller{"nccl", by_nccl}),
                         [](const auto& caller) { return std::string(caller.param.name); });

} // namespace
} // namespace rdmabuf
