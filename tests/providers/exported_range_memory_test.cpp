// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>

#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/exporter.hpp>

#include "out_of_memory.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::ElementsAre;

TEST(ExportedRange, ReleasesTheDescriptorWhenThereIsNoMemoryToHoldIt) {
    std::vector<int> released;
    released.reserve(1);
    ExportedRange::Release hook = [&released](int fd) { released.push_back(fd); };
    std::string name;
    bool thrown = false;
    try {
        const OutOfMemory nothing_left;
        const ExportedRange range(std::move(name), 5, std::move(hook), 0, 1, 0);
    } catch (const std::bad_alloc&) {
        thrown = true;
    }
    EXPECT_TRUE(thrown);
    EXPECT_THAT(released, ElementsAre(5));
}

TEST(ExportedRange, ClosesTheDescriptorWhenThereIsNoMemoryToHoldIt) {
    UniqueFd fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
    const int number = fd.get();
    std::string name;
    bool thrown = false;
    try {
        const OutOfMemory nothing_left;
        const ExportedRange range(std::move(name), std::move(fd), 0, 1, 0);
    } catch (const std::bad_alloc&) {
        thrown = true;
    }
    EXPECT_TRUE(thrown);
    EXPECT_LT(::fcntl(number, F_GETFD), 0);
}

} // namespace
} // namespace rdmabuf::testing
