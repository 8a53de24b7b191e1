// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/providers/dma_heap.hpp>
#include <rdmabuf/providers/external.hpp>
#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/resolver.hpp>

#include "adding_allocator.hpp"
#include "exporter_suite.hpp"
#include "fails_with.hpp"
#include "fake_kernel.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

const Subject subject{
    .name = "external",
    .make =
        [] {
            auto external = make_external_exporter();
            const auto add = [external](const Buffer& buffer, const ExportedRange& all) {
                return external->add(all.fd(),
                                     {.address = buffer.address(), .length = buffer.size()});
            };
            return std::make_shared<AddingAllocator>(external, add, make_dma_heap_exporter());
        },
    .machine =
        [] {
            auto kernel = std::make_shared<FakeKernel>();
            kernel->add_heap("system");
            return kernel;
        },
    .works_with = "ranges that the program adds"};

INSTANTIATE_TEST_SUITE_P(External, ExporterSuite, ::testing::Values(subject));
INSTANTIATE_TEST_SUITE_P(External, ExporterFaults, ::testing::Values(subject));

constexpr std::uintptr_t somewhere = std::uintptr_t{1} << 40;

/// What stands in for a dma-buf, with a pattern in it.
UniqueFd make_dmabuf(std::size_t pages) {
    UniqueFd fd(::memfd_create("external", MFD_CLOEXEC));
    std::vector<std::byte> bytes(pages * page_size());
    fill(bytes, static_cast<unsigned>(pages));
    EXPECT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    return fd;
}

std::vector<std::byte> pattern(std::size_t pages, std::size_t offset, std::size_t length) {
    std::vector<std::byte> bytes(pages * page_size());
    fill(bytes, static_cast<unsigned>(pages));
    const auto start = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    return {start, start + static_cast<std::ptrdiff_t>(length)};
}

class External : public ::testing::Test {
  protected:
    std::optional<Error> refusal(const ExternalMemory& memory) {
        return error_of([&] { (void)exporter->add(dmabuf.get(), memory); });
    }

    std::set<int> before = open_descriptors();
    std::shared_ptr<ExternalExporter> exporter = make_external_exporter();
    UniqueFd dmabuf = make_dmabuf(8);
};

TEST_F(External, ExportsTheMappingThatTheProgramStates) {
    const AddedRange pcie = exporter->add(
        dmabuf.get(), {.address = somewhere, .length = page_size(), .mapping = MappingKind::pcie});
    const AddedRange standard =
        exporter->add(dmabuf.get(), {.address = 2 * somewhere, .length = page_size()});
    for (const MappingKind wanted : {MappingKind::standard, MappingKind::pcie}) {
        EXPECT_EQ(exporter->export_range(somewhere, page_size(), wanted).mapping(),
                  MappingKind::pcie);
    }
    EXPECT_EQ(exporter->export_range(2 * somewhere, page_size()).mapping(), MappingKind::standard);
    EXPECT_THAT(error_of([&] {
                    (void)exporter->export_range(2 * somewhere, page_size(), MappingKind::pcie);
                }),
                fails_with(ENOTSUP));
}

TEST_F(External, AnswersWhatItWasTold) {
    const AddedRange range = exporter->add(dmabuf.get(), {.address = somewhere + 100,
                                                          .length = 3 * page_size(),
                                                          .offset = 2 * page_size() + 100,
                                                          .kind = MemoryKind::pinned_host,
                                                          .pci_address = "0000:3b:00.0",
                                                          .generation = 77});
    for (const std::uintptr_t address : {range.address(), range.address() + range.length() - 1}) {
        const auto found = exporter->find(address);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->base, somewhere + 100);
        EXPECT_EQ(found->length, 3 * page_size());
        EXPECT_EQ(found->generation, 77U);
        EXPECT_EQ(found->kind, MemoryKind::pinned_host);
        EXPECT_EQ(found->pci_address, "0000:3b:00.0");
    }
    EXPECT_EQ(range.allocation().generation, 77U);
    EXPECT_FALSE(exporter->find(range.address() - 1));
    EXPECT_FALSE(exporter->find(range.address() + range.length()));
}

TEST_F(External, FindsTheFirstOfItsRangesInAnyLongerRange) {
    const AddedRange second =
        exporter->add(dmabuf.get(), {.address = somewhere + 9 * page_size(), .length = 1});
    const AddedRange first =
        exporter->add(dmabuf.get(), {.address = somewhere + 3 * page_size(), .length = 100});
    const auto found = exporter->find_overlapping(somewhere / 2, somewhere);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, first.address());
    EXPECT_FALSE(exporter->find_overlapping(somewhere / 2, somewhere / 2));
    EXPECT_EQ(exporter->find_overlapping(first.address() + 100, somewhere)->base, second.address());
}

TEST_F(External, ExportsFromWhereTheMemoryLiesInItsDmaBuf) {
    const std::size_t offset = 2 * page_size() + 100;
    const AddedRange range = exporter->add(
        dmabuf.get(), {.address = somewhere + 100, .length = 3 * page_size(), .offset = offset});
    const ExportedRange all = exporter->export_range(range.address(), range.length());
    EXPECT_EQ(all.offset(), offset);
    EXPECT_EQ(all.address(), somewhere + 100);
    EXPECT_EQ(bytes_through(all, false), pattern(8, offset, range.length()));
    EXPECT_NE(all.fd(), dmabuf.get());
    dmabuf.reset(); // the exporter has a descriptor of its own
    const ExportedRange part = exporter->export_range(range.address() + 5000, 70);
    EXPECT_EQ(part.offset(), offset + 5000);
    EXPECT_EQ(bytes_through(part, false), pattern(8, offset + 5000, 70));
    EXPECT_TRUE(closed_on_exec(all.fd()));
}

TEST_F(External, TakesADescriptorThatItIsGiven) {
    const int number = dmabuf.get();
    AddedRange range =
        exporter->add(std::move(dmabuf), {.address = somewhere, .length = page_size()});
    EXPECT_GE(::fcntl(number, F_GETFD), 0);
    range.remove();
    EXPECT_EQ(::fcntl(number, F_GETFD), -1);
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(External, ClosesADescriptorThatItWasGivenInVain) {
    EXPECT_TRUE(error_of([&] { (void)exporter->add(std::move(dmabuf), {.address = somewhere}); }));
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(External, ForgetsARangeThatIsRemoved) {
    AddedRange range = exporter->add(dmabuf.get(), {.address = somewhere, .length = page_size()});
    EXPECT_TRUE(range.added());
    EXPECT_EQ(exporter->availability().reason, "ranges that the program adds; it has added 1");
    range.remove();
    range.remove();
    EXPECT_FALSE(range.added());
    EXPECT_FALSE(exporter->find(somewhere));
    EXPECT_THAT(error_of([&] { (void)exporter->export_range(somewhere, 1); }),
                fails_with(EFAULT, "not in any live buffer of this external exporter"));
}

TEST_F(External, ForgetsARangeWhoseHandleIsGoneOrReplaced) {
    { const AddedRange range = exporter->add(dmabuf.get(), {.address = somewhere, .length = 1}); }
    EXPECT_FALSE(exporter->find(somewhere));
    AddedRange first = exporter->add(dmabuf.get(), {.address = somewhere, .length = 1});
    AddedRange second =
        exporter->add(dmabuf.get(), {.address = somewhere + page_size(), .length = 1});
    first = std::move(second);
    EXPECT_FALSE(exporter->find(somewhere));
    EXPECT_TRUE(exporter->find(somewhere + page_size()));
}

TEST_F(External, ARangeSurvivesItsExporter) {
    {
        const AddedRange range = exporter->add(dmabuf.get(), {.address = somewhere, .length = 1});
        exporter.reset();
        EXPECT_TRUE(range.added());
    }
    dmabuf.reset();
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(External, RefusesAnOverlapAndNamesBoth) {
    const AddedRange range =
        exporter->add(dmabuf.get(), {.address = somewhere, .length = 2 * page_size()});
    const std::vector<std::pair<std::uintptr_t, std::size_t>> overlaps = {
        {somewhere, 2 * page_size()},
        {somewhere, 1},
        {somewhere - page_size(), page_size() + 1},
        {somewhere - page_size(), 8 * page_size()},
        {somewhere + page_size(), page_size()},
        {somewhere + page_size(), 7 * page_size()},
    };
    for (const auto& [address, length] : overlaps) {
        EXPECT_THAT(refusal({.address = address, .length = length}),
                    fails_with(EEXIST, "the " + std::to_string(length) + " bytes at 0x",
                               "overlap the " + std::to_string(2 * page_size()) +
                                   " bytes at 0x10000000000"))
            << length << " bytes at " << address;
        EXPECT_EQ(exporter->find(somewhere)->length, 2 * page_size());
        EXPECT_FALSE(exporter->find(somewhere - 1));
    }
    // What only touches it is no overlap.
    const AddedRange below =
        exporter->add(dmabuf.get(), {.address = somewhere - page_size(), .length = page_size()});
    const AddedRange above =
        exporter->add(dmabuf.get(), {.address = somewhere + 2 * page_size(), .length = 1});
    EXPECT_EQ(exporter->find(somewhere - 1)->base, below.address());
    EXPECT_EQ(exporter->find(above.address())->base, above.address());
}

TEST_F(External, RefusesARangeBehindTheEndOfTheDmaBuf) {
    const std::size_t most = std::numeric_limits<std::size_t>::max();
    const std::vector<std::pair<std::uint64_t, std::size_t>> ranges = {
        {0, 8 * page_size() + 1},
        {page_size(), 8 * page_size()},
        {8 * page_size(), 1},
        {9 * page_size(), 1},
        {most / page_size() * page_size() - page_size(), 1},
    };
    for (const auto& [offset, length] : ranges) {
        EXPECT_THAT(refusal({.address = somewhere, .length = length, .offset = offset}),
                    fails_with(ERANGE,
                               std::to_string(length) + " bytes at 0x10000000000, offset " +
                                   std::to_string(offset),
                               "has " + std::to_string(8 * page_size()) + " bytes"));
    }
    const AddedRange last = exporter->add(
        dmabuf.get(), {.address = somewhere, .length = page_size(), .offset = 7 * page_size()});
    EXPECT_EQ(exporter->export_range(somewhere, page_size()).offset(), 7 * page_size());
}

TEST_F(External, LeavesThePositionOfAFileAlone) {
    ASSERT_EQ(::lseek(dmabuf.get(), 123, SEEK_SET), 123);
    const AddedRange range = exporter->add(dmabuf.get(), {.address = somewhere, .length = 1});
    EXPECT_TRUE(refusal({.address = somewhere * 2, .length = 9 * page_size()}));
    EXPECT_EQ(::lseek(dmabuf.get(), 0, SEEK_CUR), 123);
}

TEST_F(External, RefusesADescriptorThatHasNoSize) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const UniqueFd reader(ends[0]);
    const UniqueFd writer(ends[1]);
    EXPECT_THAT(
        error_of([&] { (void)exporter->add(reader.get(), {.address = somewhere, .length = 1}); }),
        fails_with(EINVAL, "is not that of a dma-buf: the file has no bytes"));
    EXPECT_FALSE(exporter->find(somewhere));
}

TEST_F(External, RefusesADescriptorThatIsNoDmaBuf) {
    const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    for (const std::size_t offset : {std::size_t{0}, page_size()}) {
        EXPECT_THAT(error_of([&] {
                        (void)exporter->add(
                            event.get(),
                            {.address = somewhere, .length = page_size(), .offset = offset});
                    }),
                    fails_with(EINVAL, "is not that of a dma-buf: the file has no bytes"));
    }
    EXPECT_FALSE(exporter->find(somewhere));
}

TEST_F(External, RefusesDescriptorsThatAreNotOpen) {
    for (const int fd : {-1, 9999}) {
        EXPECT_THAT(
            error_of([&] {
                (void)exporter->add(fd, ExternalMemory{.address = somewhere, .length = 1});
            }),
            fails_with("fcntl", EBADF, "descriptor " + std::to_string(fd) + " is not open"));
    }
    EXPECT_THAT(
        error_of([&] { (void)exporter->add(UniqueFd(), {.address = somewhere, .length = 1}); }),
        fails_with(EBADF, "the UniqueFd has no descriptor"));
}

TEST_F(External, TellsThatTheProcessHasNoDescriptorsLeft) {
    FakeKernel kernel;
    dmabuf = make_dmabuf(1); // the fake's
    kernel.fail_call(1, EMFILE);
    const auto error = refusal({.address = somewhere, .length = 1});
    EXPECT_EQ(kernel.failed_call(), "fcntl");
    EXPECT_THAT(error, fails_with("fcntl", EMFILE, "ulimit -n"));
    EXPECT_FALSE(exporter->find(somewhere));
}

TEST_F(External, RefusesNumbersThatMakeNoRange) {
    const std::size_t most = std::numeric_limits<std::size_t>::max();
    const std::uintptr_t top = most / page_size() * page_size();
    const std::vector<std::pair<ExternalMemory, std::string>> refused = {
        {{.address = somewhere}, "0 bytes"},
        {{.length = 1}, "address 0 means an unknown address"},
        {{.address = top, .length = page_size() + 1}, "does not fit into 64 bits"},
        {{.address = somewhere, .length = page_size() + 1, .offset = top},
         "does not fit into 64 bits"},
        {{.address = somewhere + 24, .length = 1}, "24 bytes into its page and the offset 0"},
        {{.address = somewhere, .length = 1, .offset = page_size() + 8},
         "0 bytes into its page and the offset 8"},
        {{.address = somewhere, .length = 1, .pci_address = "3b:00.0"}, "PCI address '3b:00.0'"},
    };
    for (const auto& [memory, text] : refused) {
        EXPECT_THAT(refusal(memory), fails_with(EINVAL, text)) << text;
    }
}

} // namespace
} // namespace rdmabuf::testing
