// SPDX-License-Identifier: BSD-3-Clause
#include "exporter_suite.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>

#include "fails_with.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes copy_of(std::span<const std::byte> bytes) {
    return {bytes.begin(), bytes.end()};
}

Bytes contents_of(const Buffer& buffer) {
    Bytes bytes(buffer.size());
    buffer.copy_out(0, bytes);
    return bytes;
}

std::uintptr_t end_of(const Buffer& buffer) {
    return buffer.address() + buffer.size();
}

} // namespace

Bytes fill_buffer(const Buffer& buffer, unsigned seed) {
    Bytes bytes(buffer.size());
    fill(bytes, seed);
    if (buffer.mapped()) {
        std::ranges::copy(bytes, buffer.cpu_access(CpuAccessMode::write).bytes().begin());
    } else {
        buffer.copy_in(0, bytes);
    }
    return bytes;
}

namespace {

TEST_P(ExporterSuite, IsAvailableAndTellsItsDevice) {
    const Availability found = exporter().availability();
    EXPECT_TRUE(found.available) << to_string(found);
    EXPECT_THAT(found.reason, HasSubstr(GetParam().works_with));
    EXPECT_EQ(found.remedy, "");
    EXPECT_EQ(exporter().name(), GetParam().name);
}

TEST_P(ExporterSuite, MakesWholePagesOfWhatIsAskedFor) {
    for (const std::size_t size : {std::size_t{1}, page_size(), page_size() + 1}) {
        const Buffer buffer = exporter().allocate(size);
        EXPECT_GE(buffer.size(), size);
        EXPECT_EQ(buffer.size() % page_size(), 0U);
        EXPECT_EQ(buffer.address() % page_size(), 0U);
        EXPECT_EQ(buffer.mapped(), GetParam().mapped);
    }
}

TEST_P(ExporterSuite, RefusesToMakeNothing) {
    EXPECT_THAT(error_of([&] { (void)exporter().allocate(0); }), fails_with(EINVAL, "0 bytes"));
}

TEST_P(ExporterSuite, RefusesMoreThanAnAddressSpaceHolds) {
    const auto most = std::numeric_limits<std::size_t>::max();
    for (const std::size_t size : {most, most - page_size(), most / 2 + 1}) {
        EXPECT_THAT(error_of([&] { (void)exporter().allocate(size); }),
                    fails_with(ENOMEM, std::to_string(size)));
    }
}

TEST_P(ExporterSuite, FindsABufferByAnyOfItsAddresses) {
    const Buffer buffer = exporter().allocate(3 * page_size());
    for (const std::uintptr_t address : {buffer.address(), buffer.address() + 1,
                                         buffer.address() + page_size() + 17, end_of(buffer) - 1}) {
        const auto found = exporter().find(address);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->base, buffer.address());
        EXPECT_EQ(found->length, buffer.size());
        EXPECT_NE(found->generation, 0U);
    }
    EXPECT_FALSE(exporter().find(buffer.address() - 1));
    EXPECT_FALSE(exporter().find(end_of(buffer)));
    EXPECT_FALSE(exporter().find(0));
}

TEST_P(ExporterSuite, FindsABufferByAnyRangeThatOverlapsIt) {
    const Buffer buffer = exporter().allocate(3 * page_size());
    const std::uintptr_t before = buffer.address() - page_size();
    for (const auto& [address, length] :
         {std::pair(before, buffer.size() + 2 * page_size()), std::pair(before, page_size() + 1),
          std::pair(buffer.address() + page_size(), std::size_t{1}),
          std::pair(end_of(buffer) - 1, 2 * page_size())}) {
        const auto found = exporter().find_overlapping(address, length);
        ASSERT_TRUE(found) << length;
        EXPECT_EQ(found->base, buffer.address());
        EXPECT_EQ(found->length, buffer.size());
    }
    EXPECT_FALSE(exporter().find_overlapping(before, page_size()));
    EXPECT_FALSE(exporter().find_overlapping(buffer.address(), 0));
    EXPECT_FALSE(exporter().find_overlapping(end_of(buffer), page_size()));
}

TEST_P(ExporterSuite, TellsBuffersApart) {
    const Buffer first = exporter().allocate(page_size());
    const Buffer second = exporter().allocate(2 * page_size());
    const auto of_first = exporter().find(first.address());
    const auto of_second = exporter().find(second.address());
    ASSERT_TRUE(of_first && of_second);
    EXPECT_EQ(of_first->length, first.size());
    EXPECT_EQ(of_second->length, second.size());
    EXPECT_NE(of_first->generation, of_second->generation);
    const Bytes expected = fill_buffer(first, 1);
    fill_buffer(second, 2);
    const ExportedRange range = exporter().export_range(first.address(), first.size());
    EXPECT_EQ(bytes_of(range), expected);
    EXPECT_EQ(contents_of(first), expected);
}

TEST_P(ExporterSuite, ExportsAnySubRange) {
    const Buffer buffer = exporter().allocate(4 * page_size());
    const Bytes expected = fill_buffer(buffer, 7);
    const std::vector<std::pair<std::size_t, std::size_t>> ranges = {
        {0, buffer.size()},
        {0, 1},
        {buffer.size() - 1, 1},
        {page_size(), page_size()},
        {100, 300},
        {4095, 2},
        {page_size() - 1, 2 * page_size() + 2},
    };
    for (const auto& [offset, length] : ranges) {
        const ExportedRange range = exporter().export_range(buffer.address() + offset, length);
        EXPECT_GE(range.fd(), 0);
        const std::size_t before =
            GetParam().exports_pages ? offset / page_size() * page_size() : 0;
        const std::size_t end = (offset + length + page_size() - 1) / page_size() * page_size();
        const auto held = static_cast<std::size_t>(::lseek(range.fd(), 0, SEEK_END));
        const std::size_t wanted = GetParam().exports_pages ? end - before : buffer.size();
        EXPECT_TRUE(GetParam().exports_more ? held >= wanted : held == wanted) << held << " bytes";
        EXPECT_EQ(range.offset(), offset - before);
        EXPECT_EQ(range.length(), length);
        EXPECT_EQ(range.address(), buffer.address() + offset);
        EXPECT_EQ(range.exporter(), GetParam().name);
        EXPECT_EQ(range.mapping(), MappingKind::standard);
        const auto start = expected.begin() + static_cast<std::ptrdiff_t>(offset);
        EXPECT_EQ(bytes_of(range), Bytes(start, start + static_cast<std::ptrdiff_t>(length)))
            << length << " bytes at " << offset;
    }
}

TEST_P(ExporterSuite, ShowsThroughAnExportedDescriptorWhatIsWrittenLater) {
    const Buffer buffer = exporter().allocate(page_size());
    const ExportedRange range = exporter().export_range(buffer.address(), buffer.size());
    for (unsigned seed = 1; seed <= 3; ++seed) {
        const Bytes expected = fill_buffer(buffer, seed);
        EXPECT_EQ(bytes_of(range), expected);
    }
}

TEST_P(ExporterSuite, CopiesWhereverTheBytesAre) {
    const Buffer buffer = exporter().allocate(2 * page_size());
    Bytes expected = fill_buffer(buffer, 8);
    EXPECT_EQ(contents_of(buffer), expected);
    Bytes part(page_size() + 3);
    fill(part, 9);
    buffer.copy_in(17, part);
    std::ranges::copy(part, expected.begin() + 17);
    EXPECT_EQ(contents_of(buffer), expected);
    buffer.copy_out(18, std::span(part).first(5));
    EXPECT_TRUE(std::equal(part.begin(), part.begin() + 5, expected.begin() + 18));
    if (GetParam().mapped) {
        EXPECT_EQ(copy_of(buffer.cpu_access(CpuAccessMode::read).bytes()), expected);
        return;
    }
    EXPECT_THAT(error_of([&] { (void)buffer.cpu_access(); }), fails_with(ENOTSUP));
}

TEST_P(ExporterSuite, RefusesCopiesThatLeaveTheBuffer) {
    const Buffer buffer = exporter().allocate(page_size());
    const Bytes expected = fill_buffer(buffer, 10);
    Bytes bytes(buffer.size() + 1);
    for (const std::size_t offset : {std::size_t{0}, buffer.size(), SIZE_MAX, SIZE_MAX - 1}) {
        for (const auto& error : {error_of([&] { buffer.copy_in(offset, bytes); }),
                                  error_of([&] { buffer.copy_out(offset, bytes); })}) {
            ASSERT_TRUE(error);
            EXPECT_EQ(error->error(), ERANGE);
            EXPECT_THAT(error->what(), HasSubstr(std::to_string(buffer.size())));
        }
    }
    EXPECT_EQ(contents_of(buffer), expected);
}

TEST_P(ExporterSuite, RefusesARangeThatLeavesTheBuffer) {
    const Buffer buffer = exporter().allocate(2 * page_size());
    const std::size_t most = std::numeric_limits<std::size_t>::max();
    const std::vector<std::pair<std::size_t, std::size_t>> ranges = {
        {0, buffer.size() + 1},
        {buffer.size() - 1, 2},
        {100, buffer.size()},
        {1, most},
        {page_size(), most - page_size() + 1},
    };
    for (const auto& [offset, length] : ranges) {
        EXPECT_THAT(
            error_of([&, o = offset, l = length] {
                (void)exporter().export_range(buffer.address() + o, l);
            }),
            fails_with(ERANGE,
                       std::to_string(length) + " bytes at offset " + std::to_string(offset),
                       "buffer of " + std::to_string(buffer.size())));
    }
}

TEST_P(ExporterSuite, RefusesARangeOfNothing) {
    const Buffer buffer = exporter().allocate(page_size());
    EXPECT_THAT(error_of([&] { (void)exporter().export_range(buffer.address(), 0); }),
                fails_with(EINVAL, "0 bytes"));
}

TEST_P(ExporterSuite, RefusesAnAddressItDoesNotKnow) {
    const Buffer buffer = exporter().allocate(page_size());
    EXPECT_THAT(error_of([&] { (void)exporter().export_range(0x1234, 1); }),
                fails_with(EFAULT, "0x1234", GetParam().name));
}

TEST_P(ExporterSuite, RefusesTheMappingItDoesNotHaveOrTellsThatItFellBack) {
    const Buffer buffer = exporter().allocate(page_size());
    std::optional<ExportedRange> range;
    const auto error = error_of(
        [&] { range.emplace(exporter().export_range(buffer.address(), 1, MappingKind::pcie)); });
    EXPECT_EQ(!error, GetParam().falls_back);
    if (error) {
        EXPECT_EQ(error->error(), ENOTSUP);
        EXPECT_THAT(error->what(), HasSubstr(GetParam().name));
    } else {
        EXPECT_EQ(range->mapping(), MappingKind::standard);
    }
}

TEST_P(ExporterSuite, ForgetsABufferThatIsFreed) {
    std::uintptr_t address = 0;
    {
        const Buffer buffer = exporter().allocate(page_size());
        address = buffer.address();
        ASSERT_TRUE(exporter().find(address));
    }
    EXPECT_FALSE(exporter().find(address));
    EXPECT_THAT(error_of([&] { (void)exporter().export_range(address, 1); }), fails_with(EFAULT));
}

TEST_P(ExporterSuite, GivesAReusedAddressANewGeneration) {
    // The kernel reuses an address soon if nothing else is mapped in between.
    std::set<std::uintptr_t> addresses;
    std::set<std::uint64_t> generations;
    constexpr std::size_t rounds = 32;
    for (std::size_t round = 0; round < rounds; ++round) {
        const Buffer buffer = exporter().allocate(page_size());
        addresses.insert(buffer.address());
        generations.insert(exporter().find(buffer.address())->generation);
    }
    EXPECT_LT(addresses.size(), rounds) << "no address was used twice";
    EXPECT_EQ(generations.size(), rounds);
}

TEST_P(ExporterSuite, OpensOnlyDescriptorsThatAreClosedOnExec) {
    const auto before = open_descriptors();
    const Buffer buffer = exporter().allocate(page_size());
    const ExportedRange range = exporter().export_range(buffer.address(), 1);
    auto opened = open_descriptors();
    std::erase_if(opened, [&](int fd) { return before.contains(fd); });
    EXPECT_EQ(opened.count(range.fd()), 1U);
    EXPECT_GE(opened.size(), 2U);
    for (const int fd : opened) {
        EXPECT_TRUE(closed_on_exec(fd)) << "descriptor " << fd;
    }
}

TEST_P(ExporterSuite, AnExportedRangeSurvivesItsBuffer) {
    auto buffer = std::make_unique<Buffer>(exporter().allocate(page_size()));
    const Bytes expected = fill_buffer(*buffer, 3);
    const ExportedRange range = exporter().export_range(buffer->address(), buffer->size());
    buffer.reset();
    EXPECT_EQ(bytes_of(range), expected);
}

TEST_P(ExporterSuite, ABufferSurvivesItsAllocator) {
    const auto before = open_descriptors();
    {
        const Buffer buffer = exporter().allocate(2 * page_size());
        const ExportedRange range = exporter().export_range(buffer.address(), buffer.size());
        drop_exporter();
        const Bytes expected = fill_buffer(buffer, 5);
        EXPECT_EQ(bytes_of(range), expected);
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST_P(ExporterSuite, GivesEverythingBack) {
    const auto before = open_descriptors();
    for (int cycle = 0; cycle < 50; ++cycle) {
        const Buffer buffer = exporter().allocate(page_size());
        const Buffer moved_to = exporter().allocate(page_size());
        ExportedRange range = exporter().export_range(buffer.address(), 1);
        // The assignment must close the descriptor of the first range.
        range = exporter().export_range(moved_to.address(), page_size());
        EXPECT_EQ(range.length(), page_size());
        EXPECT_TRUE(exporter().availability());
    }
    EXPECT_EQ(open_descriptors(), before);
}

} // namespace
} // namespace rdmabuf::testing
