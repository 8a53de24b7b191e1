// SPDX-License-Identifier: BSD-3-Clause
#include "device/verbs_extensions.hpp"

#include <dlfcn.h>

#include <gtest/gtest.h>

namespace rdmabuf::detail {
namespace {

TEST(VerbsExtensions, AreLookedUpAgainWhenALaterDeviceBringsItsProvider) {
    ASSERT_EQ(verbs_extensions().mlx5_reg_dmabuf_mr, nullptr)
        << "no device is open in this program, and no provider is loaded";
    EXPECT_FALSE(data_direct_function());
    void* const provider = ::dlopen(LATER_PROVIDER, RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(provider, nullptr) << ::dlerror();
    EXPECT_EQ(reinterpret_cast<void*>(verbs_extensions().mlx5_reg_dmabuf_mr),
              ::dlsym(provider, "mlx5dv_reg_dmabuf_mr"));
    EXPECT_TRUE(data_direct_function());
    EXPECT_EQ(::dlclose(provider), 0);
}

} // namespace
} // namespace rdmabuf::detail
