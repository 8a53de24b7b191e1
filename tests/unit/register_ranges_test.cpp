// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "four_nics_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::error_of;
using testing::fails_with;
using testing::FourNics;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* function = "register_ranges";

class RegisterRanges : public FourNics {
  protected:
    /// @p count ranges one behind the other, of 1 to 3 pages.
    [[nodiscard]] std::vector<AddressRange> ranges(std::size_t count) const {
        std::vector<AddressRange> list;
        std::uintptr_t next = base();
        for (std::size_t i = 0; i < count; ++i) {
            list.push_back({.address = next, .length = (3 - i % 3) * 4096});
            next += list.back().length;
        }
        return list;
    }
};

TEST_F(RegisterRanges, RegistersEachRangeOnEachNicInTheOrderOfTheList) {
    const std::vector<AddressRange> list = ranges(200);
    for (const unsigned threads : {1U, 7U}) {
        const std::vector<Registration> made =
            register_ranges(pds_, resolver_, list, {.threads = threads});
        ASSERT_THAT(made, SizeIs(200));
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 800U);
        for (std::size_t r = 0; r < list.size(); ++r) {
            EXPECT_EQ(made[r].address(), list[r].address);
            EXPECT_EQ(made[r].length(), list[r].length);
            ASSERT_EQ(made[r].size(), 4U);
            for (std::size_t i = 0; i < 4; ++i) {
                EXPECT_EQ(made[r].remote(i).address, list[r].address);
                EXPECT_EQ(made[r].protection_domain(i), pds_[i]);
            }
        }
    }
    EXPECT_EQ(exporter_->exports.size(), 400U);
    EXPECT_EQ(exporter_->releases, 400U);
    EXPECT_LE(exporter_->most_exported, 64U) << "not a descriptor for each range";
}

TEST_F(RegisterRanges, NoRangesGiveNoRegistrations) {
    EXPECT_THAT(register_ranges(pds_, resolver_, {}), IsEmpty());
}

TEST_F(RegisterRanges, ShortRangesAreRegisteredFirst) {
    const std::vector<AddressRange> list = ranges(100);
    const auto made = register_ranges(std::span(pds_).first(1), resolver_, list);
    std::vector<std::size_t> lengths;
    for (const testing::Registration& registration : testing::record().registrations) {
        lengths.push_back(registration.length);
    }
    ASSERT_THAT(lengths, SizeIs(100));
    EXPECT_TRUE(std::ranges::is_sorted(lengths));
}

TEST_F(RegisterRanges, RangesOfOneNicRegisterAtTheSameTimeWithMoreThreads) {
    const auto threads = observe(3);
    const std::vector<AddressRange> list = ranges(3);
    static_cast<void>(register_ranges(std::span(pds_).first(1), resolver_, list, {.threads = 3}));
    EXPECT_TRUE(threads->met());
    EXPECT_EQ(exporter_->callers, this_thread_);
}

TEST_F(RegisterRanges, RangeThatFailsIsNamedAndNoneStaysRegistered) {
    std::vector<AddressRange> list = ranges(100);
    list[50].address = base() + 4 * mebibyte - 4096; // two pages of it are outside
    list[50].length = std::size_t{3} * 4096;
    for (const unsigned threads : {1U, 4U}) {
        Trail trail;
        const auto error = error_of([&] {
            static_cast<void>(register_ranges(
                pds_, resolver_, list,
                {.paths = {RegistrationPath::dmabuf}, .threads = threads, .trail = &trail}));
        });
        EXPECT_THAT(error, fails_with(function, ERANGE, "12288 bytes at 0x2000003ff000"));
        EXPECT_THAT(to_string(trail), HasSubstr("the range leaves the allocation"));
        EXPECT_THAT(trail, SizeIs(1));
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
        EXPECT_EQ(exporter_->exports.size(), exporter_->releases + 1) << "all but the failed one";
        exporter_->exports.clear();
        exporter_->releases = 0;
    }
}

TEST_F(RegisterRanges, EachRangeTakesThePathThatItsMemoryNeeds) {
    alignas(4096) std::array<std::byte, 4096> host{};
    const std::vector<AddressRange> list{
        {.address = base(), .length = 4096},
        {.address = reinterpret_cast<std::uintptr_t>(host.data()), .length = host.size()}};
    Trail trail;
    const auto made = register_ranges(pds_, resolver_, list, {.threads = 4, .trail = &trail});
    EXPECT_EQ(made[0].path(3), RegistrationPath::dmabuf);
    EXPECT_EQ(made[1].path(3), RegistrationPath::host);
    EXPECT_EQ(to_string(trail), to_string(made[0].trail()) + " " + to_string(made[1].trail()));
}

TEST_F(RegisterRanges, RefusesWhatCannotBeBeforeAnythingIsTried) {
    std::vector<AddressRange> list = ranges(2);
    EXPECT_THAT(error_of([&] {
                    static_cast<void>(register_ranges(pds_, resolver_, list, {.iova = 0x10000}));
                }),
                fails_with(function, EINVAL, "several ranges, and one iova"));
    list[1].length = 0;
    EXPECT_THAT(error_of([&] { static_cast<void>(register_ranges(pds_, resolver_, list)); }),
                fails_with(function, EINVAL, "a length of 0"));
    EXPECT_TRUE(exporter_->exports.empty());
    EXPECT_TRUE(testing::record().registrations.empty());
}

} // namespace
} // namespace rdmabuf
