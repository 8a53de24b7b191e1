// SPDX-License-Identifier: BSD-3-Clause
// The first part mirrors DmaBufMRTest of rdma-core's pyverbs by name and intent; DmaBufTestCase,
// which moves data, is in tests/support.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <string>

#include <rdmabuf/region.hpp>

#include "memory/dmabuf_diagnosis.hpp"
#include "softverbs_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::Basics;
using testing::error_of;
using testing::fails_with;
using testing::SoftverbsTest;

constexpr const char* function = "ibv_reg_dmabuf_mr";
constexpr std::size_t size = std::size_t{8} * 65536; // whole pages, of whatever size

class DmaBufMRTest : public SoftverbsTest {
  protected:
    Basics basics_;
    UniqueFd dmabuf_ = testing::make_dmabuf(size);
    const std::uint64_t page_ = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));

    static const testing::Registration& last() { return testing::record().registrations.back(); }
    [[nodiscard]] DmaBufRange range(std::uint64_t offset, std::size_t length,
                                    std::uintptr_t address = 0) const {
        return {.fd = dmabuf_.get(), .offset = offset, .length = length, .address = address};
    }
    auto refusal(const DmaBufRange& range, const DmaBufOptions& options = {}) {
        return error_of([&] { DmaBufMR(basics_.pd, range, options); });
    }
};

constexpr std::array all_access{
    Access::local_read,
    Access::local_write,
    Access::remote_read,
    Access::local_write | Access::remote_write,
    Access::local_write | Access::remote_atomic,
    full_access,
    full_access | Access::relaxed_ordering,
};

TEST_F(DmaBufMRTest, RegMr) {
    for (const Access access : all_access) {
        for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{size / 2}}) {
            const DmaBufMR region(basics_.pd, range(offset, size / 2), {.access = access});
            EXPECT_EQ(last().function, function);
            EXPECT_EQ(last().start, offset);
            EXPECT_EQ(last().length, size / 2);
            EXPECT_EQ(last().fd, dmabuf_.get());
            EXPECT_EQ(last().access, static_cast<unsigned>(access));
            EXPECT_EQ(region.access(), access);
            EXPECT_EQ(region.length(), size / 2);
            EXPECT_EQ(region.offset(), offset);
            EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 1U);
        }
    }
}

TEST_F(DmaBufMRTest, RegMrBadFlags) {
    for (const Access access : {Access::remote_write, Access::remote_atomic,
                                Access::remote_write | Access::remote_atomic}) {
        EXPECT_THAT(
            refusal(range(0, size), {.access = access}),
            fails_with(function, EINVAL, to_string(access) + " needs local_write too: the kernel"));
    }
    EXPECT_TRUE(testing::record().registrations.empty());
}

// Addresses

TEST_F(DmaBufMRTest, IsKnownByTheBuffersAddress) {
    const std::uintptr_t address = 16 * page_ + 24;
    const DmaBufMR region(basics_.pd, range(page_ + 24, 100, address));
    EXPECT_EQ(last().iova, address);
    EXPECT_EQ(region.iova(), address);
    EXPECT_EQ(region.address(), address);
    EXPECT_EQ(region.remote(),
              (RemoteRegion{.address = address, .length = 100, .rkey = region.rkey()}));
}

TEST_F(DmaBufMRTest, IsKnownByItsOffsetWhereThereIsNoAddress) {
    const DmaBufMR region(basics_.pd, range(page_ + 24, 100));
    EXPECT_EQ(last().iova, page_ + 24);
    EXPECT_EQ(region.iova(), page_ + 24);
    EXPECT_EQ(region.address(), 0U);
    // Verbs' own idea of an address is none.
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.native()->addr), page_ + 24);
}

TEST_F(DmaBufMRTest, TakesAnIova) {
    const DmaBufMR region(basics_.pd, range(page_, 100, 16 * page_), {.iova = 0});
    EXPECT_EQ(last().iova, 0U);
    EXPECT_EQ(region.iova(), 0U);
    EXPECT_EQ(region.address(), 16 * page_);
    EXPECT_EQ(region.sge(10, 20).addr, 10U);
}

TEST_F(DmaBufMRTest, RefusesAnIovaWithAnotherPageOffset) {
    EXPECT_THAT(refusal(range(page_ + 24, 100), {.iova = 2 * page_ + 8}),
                fails_with(function, EINVAL,
                           "the iova lies 8 bytes into its page and the offset 24 bytes into its"));
    EXPECT_THAT(refusal(range(page_ + 24, 100), {.iova = 0}),
                fails_with(function, EINVAL, "a page has " + std::to_string(page_)));
    // The address is the iova unless one is given.
    EXPECT_THAT(refusal(range(24, 100, 16 * page_)), fails_with(function, EINVAL, "0 bytes into"));
    EXPECT_TRUE(testing::record().registrations.empty());
}

// Bad input

TEST_F(DmaBufMRTest, RefusesFlagsThatDmaBufsDoNotHave) {
    for (const Access flag : {Access::zero_based, Access::on_demand, Access::hugetlb,
                              Access::memory_window_bind, static_cast<Access>(1U << 30U)}) {
        EXPECT_THAT(refusal(range(0, size), {.access = full_access | flag}),
                    fails_with(function, EINVAL,
                               "a dma-buf cannot be registered with " + to_string(flag) +
                                   "; allowed are local_write|remote_write|remote_read|"
                                   "remote_atomic|relaxed_ordering"));
    }
    EXPECT_TRUE(testing::record().registrations.empty());
}

TEST_F(DmaBufMRTest, RefusesALengthOfZero) {
    EXPECT_THAT(refusal(range(0, 0)), fails_with(function, EINVAL, "a length of 0"));
    EXPECT_THAT(refusal(range(page_, 0)), fails_with(function, EINVAL, "a length of 0"));
    EXPECT_TRUE(testing::record().registrations.empty());
}

TEST_F(DmaBufMRTest, RefusesARangeThatOverflows) {
    const std::uint64_t offset = std::numeric_limits<std::uint64_t>::max() - page_ + 1;
    EXPECT_THAT(refusal(range(offset, page_)),
                fails_with(function, EINVAL,
                           "offset " + std::to_string(offset) + " + length " +
                               std::to_string(page_) + " overflows 64 bits"));
    EXPECT_TRUE(testing::record().registrations.empty());
}

TEST_F(DmaBufMRTest, SaysWhenTheDescriptorIsNotOpen) {
    EXPECT_THAT(refusal({.fd = -1, .length = size}),
                fails_with(function, EBADF, "descriptor -1 is not open"));
    EXPECT_THAT(refusal({.length = size}),
                fails_with(function, EBADF, "descriptor -1 is not open"));
    EXPECT_THAT(refusal({.fd = 987654, .length = size}),
                fails_with(function, EBADF, "descriptor 987654 is not open"));
}

TEST_F(DmaBufMRTest, SaysWhatADescriptorIsThatIsNoDmaBuf) {
    const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    EXPECT_THAT(refusal({.fd = event.get(), .length = size}),
                fails_with(function, EINVAL,
                           "descriptor " + std::to_string(event.get()) +
                               " is not a dma-buf: it is anon_inode:[eventfd]"));
}

TEST_F(DmaBufMRTest, SaysHowFarARangeLeavesAMemfd) {
    const auto ends_at = [](std::uint64_t end) {
        return fails_with(function, EINVAL,
                          "the range ends at byte " + std::to_string(end) +
                              " and /memfd:in place of a dma-buf (deleted) has 524288 bytes");
    };
    EXPECT_THAT(refusal(range(page_ + 100, size)), ends_at(page_ + 100 + size));
    EXPECT_THAT(refusal(range(0, size + 1)), ends_at(size + 1));
    EXPECT_THAT(refusal(range(0, std::numeric_limits<std::size_t>::max())),
                ends_at(std::numeric_limits<std::size_t>::max()));
}

TEST_F(DmaBufMRTest, SaysWhenTheDescriptorIsOpenForReadingOnly) {
    const std::string path = "/proc/self/fd/" + std::to_string(dmabuf_.get());
    const UniqueFd readable(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_THAT(refusal({.fd = readable.get(), .length = size}),
                fails_with(function, EACCES,
                           "descriptor " + std::to_string(readable.get()) +
                               " is open for reading only: open or export it with O_RDWR"));
    EXPECT_NO_THROW(DmaBufMR(basics_.pd, {.fd = readable.get(), .length = size},
                             {.access = Access::remote_read}));
    testing::fail_dmabufs(0, EACCES);
    EXPECT_STREQ(refusal(range(0, size))->what(), "ibv_reg_dmabuf_mr: Permission denied (EACCES)");
}

TEST_F(DmaBufMRTest, SaysWhenTheDescriptorIsNotOpenForReading) {
    const std::string path = "/proc/self/fd/" + std::to_string(dmabuf_.get());
    const UniqueFd writable(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_THAT(refusal({.fd = writable.get(), .length = size}),
                fails_with(function, EACCES,
                           "descriptor " + std::to_string(writable.get()) +
                               " is open for writing only: open or export it with O_RDWR"));
    const UniqueFd named(::open(path.c_str(), O_PATH | O_CLOEXEC));
    EXPECT_THAT(refusal({.fd = named.get(), .length = size}),
                fails_with(function, EBADF,
                           "descriptor " + std::to_string(named.get()) +
                               " was opened with O_PATH: open or export it with O_RDWR"));
}

class DmaBufMROnEfa : public SoftverbsTest {
  protected:
    DmaBufMROnEfa() { EXPECT_EQ(softverbs_reset("efa", 1), 0); }
};

TEST_F(DmaBufMROnEfa, SaysWhichAccessTheDeviceMayRefuse) {
    const Basics basics;
    const UniqueFd dmabuf = testing::make_dmabuf(size);
    EXPECT_THAT(
        error_of([&] {
            DmaBufMR(basics.pd, {.fd = dmabuf.get(), .length = size}, {.access = full_access});
        }),
        fails_with(function, EOPNOTSUPP, "the device refuses one of these access flags",
                   "try without remote_atomic, which efa, for example, refuses for dma-bufs"));
}

TEST_F(DmaBufMRTest, LeavesTheFilePositionOfAWrongDescriptorAlone) {
    ASSERT_EQ(::lseek(dmabuf_.get(), 7, SEEK_SET), 7);
    testing::fail_dmabufs(0, EINVAL);
    EXPECT_TRUE(refusal(range(0, size)));
    EXPECT_EQ(::lseek(dmabuf_.get(), 0, SEEK_CUR), 7);
}

TEST_F(DmaBufMRTest, KeepsItsErrorWhenTheDeviceCannotBeAskedWhy) {
    testing::fail_dmabufs(EOPNOTSUPP);
    testing::fail_next("ibv_alloc_pd", ENOMEM);
    EXPECT_STREQ(refusal(range(0, size))->what(),
                 "ibv_reg_dmabuf_mr: Operation not supported (EOPNOTSUPP)");
}

// What softverbs cannot show where there are no real dma-bufs.

class DmaBufDiagnosis : public DmaBufMRTest {
  protected:
    std::string diagnose(const DmaBufRange& range, int error, Access access = Access::local_write) {
        const detail::DescriptorFacts dmabuf{
            .exporter = "drm", .file = "/dmabuf:", .size = static_cast<std::int64_t>(size)};
        return detail::diagnose_dmabuf(basics_.context, range, dmabuf, access, error);
    }
};

TEST_F(DmaBufDiagnosis, HasBothNumbersOfARangePastTheEnd) {
    EXPECT_EQ(diagnose(range(size / 2, size), EINVAL),
              "the range ends at byte 786432 and the dma-buf has 524288 bytes");
}

TEST_F(DmaBufDiagnosis, OfARangeInsideNamesTheExporter) {
    EXPECT_EQ(diagnose(range(size / 2, size / 2), EINVAL),
              "the driver refused this range or these access flags; the dma-buf is from drm");
}

TEST_F(DmaBufDiagnosis, NamesTheExporterThatRefuses) {
    EXPECT_THAT(
        diagnose(range(0, size), EOPNOTSUPP),
        ::testing::AllOf(
            ::testing::StartsWith("soft0 can import dma-bufs, but not from drm with local_write: "),
            ::testing::Not(::testing::HasSubstr("remote_atomic"))));
    EXPECT_THAT(diagnose(range(0, size), EOPNOTSUPP, full_access),
                ::testing::HasSubstr("; try without remote_atomic"));
    EXPECT_THAT(diagnose(range(0, size), 524),
                ::testing::StartsWith("drm refuses soft0: the PCI topology"));
    EXPECT_THAT(diagnose(range(0, size), EPERM), ::testing::StartsWith("drm permits no further"));
    EXPECT_THAT(diagnose(range(0, size), ENOMEM), ::testing::StartsWith("soft0 or the IOMMU has"));
    EXPECT_EQ(diagnose(range(0, size), EIO), "the dma-buf is from drm");
}

TEST_F(DmaBufDiagnosis, KnowsNoExporterOfOtherFiles) {
    const detail::DescriptorFacts facts = detail::inspect_descriptor(dmabuf_.get());
    EXPECT_EQ(facts.exporter, "");
    EXPECT_EQ(facts.size, static_cast<std::int64_t>(size));
    EXPECT_TRUE(facts.is_memfd());
    EXPECT_TRUE(facts.has_flags(O_ACCMODE, O_RDWR));
    EXPECT_THAT(facts.file, ::testing::HasSubstr("memfd:in place of a dma-buf"));
    EXPECT_EQ(detail::inspect_descriptor(-1).file, "another file");
    EXPECT_LT(detail::inspect_descriptor(-1).size, 0);
    EXPECT_FALSE(detail::inspect_descriptor(-1).known);
    EXPECT_FALSE(detail::inspect_descriptor(-1).has_flags(O_PATH, O_PATH));
}

} // namespace
} // namespace rdmabuf
