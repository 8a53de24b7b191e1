// SPDX-License-Identifier: BSD-3-Clause
// Compiled without exceptions and run-time type information, as other projects do.
#include <gtest/gtest.h>

#include <rdmabuf/adapters.hpp>

#include "foreign_types.hpp"

namespace rdmabuf {
namespace {

TEST(Adapters, NeedNeitherExceptionsNorTypeInformation) {
#if defined(__cpp_exceptions) || defined(__cpp_rtti)
    FAIL() << "compiled with them";
#endif
    constexpr DmaBufRange range{.fd = 3, .offset = 0, .length = 8, .address = 1 << 16};
    foreign::FiMrDmaBuf dmabuf{};
    foreign::UctMemRegParams params{};
    static_assert(noexcept(adapters::fill_fi_mr_dmabuf(range, dmabuf)));
    static_assert(noexcept(adapters::add_to_uct_mem_reg_params(range, params)));
    static_assert(noexcept(adapters::nccl_dmabuf(range)));
    static_assert(noexcept(adapters::nccl_reg_mr(foreign::NcclNet{}, nullptr, range, 0, nullptr)));
    adapters::fill_fi_mr_dmabuf(range, dmabuf);
    adapters::add_to_uct_mem_reg_params(range, params);
    EXPECT_EQ(dmabuf.fd + params.dmabuf_fd + adapters::nccl_dmabuf(range).fd, 9);
}

} // namespace
} // namespace rdmabuf
