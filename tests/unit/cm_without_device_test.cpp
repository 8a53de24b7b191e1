// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <chrono>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/cm.hpp>

#include "fails_with.hpp"
#include "support.hpp"

namespace rdmabuf {
namespace {

using rdmabuf::testing::error_of;
using rdmabuf::testing::fails_with;
using rdmabuf::testing::open_descriptors;
using namespace std::chrono_literals;

// What needs a device is tested in tests/kernel.
TEST(cm_without_device, says_that_there_is_none) {
    std::error_code none;
    if (!std::filesystem::is_empty("/sys/class/infiniband", none) && !none) {
        GTEST_SKIP() << "this machine has an RDMA device: see /sys/class/infiniband";
    }
    const auto expected =
        fails_with(ENODEV,
                   "rdma_create_event_channel: No such device (ENODEV): this machine has no RDMA "
                   "device: check that the driver of the NIC is loaded");
    const std::set<int> before = open_descriptors();
    EXPECT_THAT(error_of([] { const cm::Listener listener("", 0); }), expected);
    EXPECT_THAT(error_of([] { const cm::Listener listener("127.0.0.1", 0); }), expected);
    EXPECT_THAT(error_of([] { const cm::Route route("127.0.0.1", 1, 1s); }), expected);
    EXPECT_EQ(open_descriptors(), before);
}

} // namespace
} // namespace rdmabuf
