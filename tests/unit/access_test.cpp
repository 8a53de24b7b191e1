// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <rdmabuf/region.hpp>

namespace rdmabuf {
namespace {

TEST(Access, NamesItsFlagsInOneOrder) {
    EXPECT_EQ(to_string(Access::remote_read | Access::local_write), "local_write|remote_read");
    EXPECT_EQ(to_string(full_access), "local_write|remote_write|remote_read|remote_atomic");
    EXPECT_EQ(to_string(Access::memory_window_bind | Access::zero_based | Access::on_demand |
                        Access::hugetlb | Access::relaxed_ordering),
              "memory_window_bind|zero_based|on_demand|hugetlb|relaxed_ordering");
    EXPECT_EQ(to_string(Access::flush_global | Access::flush_persistent),
              "flush_global|flush_persistent");
}

TEST(Access, OfNothingIsLocalRead) {
    EXPECT_EQ(to_string(Access::local_read), "local_read");
    EXPECT_EQ(static_cast<unsigned>(Access::local_read), 0U);
}

TEST(Access, ShowsBitsWithoutANameInHexadecimal) {
    EXPECT_EQ(to_string(static_cast<Access>(1U << 30U)), "0x40000000");
    EXPECT_EQ(to_string(Access::local_write | static_cast<Access>(1U << 30U)),
              "local_write|0x40000000");
}

TEST(Access, HasAllOrAnyOfASet) {
    constexpr Access set = Access::local_write | Access::remote_read;
    EXPECT_TRUE(has(set, Access::remote_read));
    EXPECT_TRUE(has(set, set));
    EXPECT_FALSE(has(set, Access::remote_read | Access::remote_write));
    EXPECT_TRUE(has_any(set, Access::remote_read | Access::remote_write));
    EXPECT_FALSE(has_any(set, Access::remote_write | Access::remote_atomic));
    EXPECT_FALSE(has_any(set, Access::local_read));
}

TEST(Access, CombinesLikeBits) {
    Access access = Access::local_write;
    access |= Access::remote_write;
    EXPECT_EQ(access & ~Access::local_write, Access::remote_write);
    EXPECT_EQ(static_cast<unsigned>(access), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

} // namespace
} // namespace rdmabuf
