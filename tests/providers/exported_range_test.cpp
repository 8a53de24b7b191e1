// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/exporter.hpp>

namespace rdmabuf::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

UniqueFd some_descriptor() {
    return UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC));
}

/// A release hook that notes what it is given.
ExportedRange::Release note_in(std::vector<int>& released) {
    return [&released](int fd) { released.push_back(fd); };
}

TEST(ExportedRange, TellsWhatItIs) {
    std::vector<int> released;
    const ExportedRange range("test", 77, note_in(released), 8, 16, 0x1000);
    const DmaBufRange plain = range;
    EXPECT_EQ(plain.fd, 77);
    EXPECT_EQ(plain.offset, 8U);
    EXPECT_EQ(plain.length, 16U);
    EXPECT_EQ(plain.address, 0x1000U);
    EXPECT_EQ(range.exporter(), "test");
    EXPECT_EQ(range.mapping(), MappingKind::standard);
    const ExportedRange through_bar("test", some_descriptor(), 0, 1, 0, MappingKind::pcie);
    EXPECT_EQ(through_bar.mapping(), MappingKind::pcie);
}

TEST(ExportedRange, ReleasesOnceThroughTheHook) {
    std::vector<int> released;
    {
        ExportedRange first("test", 0, note_in(released), 0, 1, 0);
        const ExportedRange second = std::move(first);
        EXPECT_THAT(released, IsEmpty());
    }
    // 0 is a descriptor like any other.
    EXPECT_THAT(released, ElementsAre(0));
}

TEST(ExportedRange, ReleasesNothingWhenItHoldsNothing) {
    std::vector<int> released;
    { const ExportedRange range("test", -1, note_in(released), 0, 1, 0); }
    EXPECT_THAT(released, IsEmpty());
}

TEST(ExportedRange, ReleasesTheOldRangeWhenAssigned) {
    std::vector<int> released;
    {
        ExportedRange range("test", 5, note_in(released), 0, 1, 0);
        range = ExportedRange("test", 6, note_in(released), 0, 2, 0);
        EXPECT_THAT(released, ElementsAre(5));
        EXPECT_EQ(range.fd(), 6);
        EXPECT_EQ(range.length(), 2U);
    }
    EXPECT_THAT(released, ElementsAre(5, 6));
}

} // namespace
} // namespace rdmabuf::testing
