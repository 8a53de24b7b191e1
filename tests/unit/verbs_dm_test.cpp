// SPDX-License-Identifier: BSD-3-Clause
// On softverbs, whose device memory is a memfd, and so is what it exports: this proves what the
// library does with it, and not what a NIC or a kernel does.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rdmabuf/providers/verbs_dm.hpp>
#include <rdmabuf/resolver.hpp>

#include "exporter_suite.hpp"
#include "softverbs_fixture.hpp"
#include "temporary_directory.hpp"
#include "verbs_dm_calls.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A device with more memory than that of the other tests, opened, and what SoftverbsTest checks at
/// the end.
class Machine final : public SoftverbsTest {
  public:
    Machine() {
        change_device([](ibv_device_attr_ex& device) { device.max_dm_size = 1 << 20; });
        context.emplace(Context::open_first());
    }
    ~Machine() override { context.reset(); }
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;
    void TestBody() override {} // NOLINT(readability-identifier-naming)

    static inline std::optional<Context> context;
};

const Subject subject{.name = "verbs_dm",
                      .make = [] { return make_verbs_dm_exporter(*Machine::context); },
                      .machine = [] { return std::make_shared<Machine>(); },
                      .works_with = "the memory of soft0, 1048576 bytes",
                      .makes_dmabufs = false,
                      .mapped = false};

INSTANTIATE_TEST_SUITE_P(VerbsDm, ExporterSuite, ::testing::Values(subject));

constexpr const char* alloc = "ibv_alloc_dm";
constexpr const char* export_call = "ibv_dm_export_dmabuf_fd";
using Bytes = std::vector<std::byte>;

/// A second name for what the device exports, of another size.
int export_too_much(ibv_dm* /*dm*/) {
    const int fd = ::memfd_create("too much", MFD_CLOEXEC);
    return ::ftruncate(fd, static_cast<off_t>(2 * page_size())) == 0 ? fd : -1;
}

class VerbsDm : public SoftverbsTest {
  protected:
    void TearDown() override { calls = {}; }
    VerbsDm() {
        change_device([](ibv_device_attr_ex& device) { device.max_dm_size = 16 * page_size(); });
    }
    auto refusal(std::size_t size) {
        return error_of([&] { (void)exporter().allocate(size); });
    }
    /// Makes the exporter; of what a test has set by then.
    Allocator& exporter() {
        if (!exporter_) {
            exporter_ = make_verbs_dm_exporter(basics_.context);
        }
        return *exporter_;
    }

    Basics basics_;
    std::shared_ptr<Allocator> exporter_;
};

TEST_F(VerbsDm, KnowsWhatItsMemoryIs) {
    const Buffer buffer = exporter().allocate(1);
    const auto found = exporter().find(buffer.address() + 17);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, MemoryKind::device);
    EXPECT_EQ(found->pci_address, "5056:00:00.0"); // soft0 in the sysfs of softverbs
    EXPECT_FALSE(buffer.mapped());
    EXPECT_THAT(error_of([&] { (void)buffer.cpu_access(); }), fails_with(ENOTSUP, "no mapping"));
}

TEST_F(VerbsDm, TellsThePciAddressOfTheNic) {
    namespace fs = std::filesystem;
    const TemporaryDirectory directory;
    const std::string& folder = directory.path();
    const fs::path pci = fs::path(folder) / "0000:3b:00.0";
    fs::create_directory(pci);
    fs::create_directory_symlink("/sys/bus/pci", pci / "subsystem");
    fs::create_directory_symlink(pci, fs::path(folder) / "device");
    ibv_device& device = *basics_.context.native()->device;
    const std::string before = device.ibdev_path;
    std::snprintf(device.ibdev_path, sizeof(device.ibdev_path), "%s", folder.c_str());
    const Buffer buffer = exporter().allocate(1);
    std::snprintf(device.ibdev_path, sizeof(device.ibdev_path), "%s", before.c_str());
    EXPECT_EQ(exporter().find(buffer.address())->pci_address, "0000:3b:00.0");
}

TEST_F(VerbsDm, GivesAddressesThatNobodyCanTouch) {
    const Buffer buffer = exporter().allocate(2 * page_size());
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const UniqueFd reader(ends[0]);
    const UniqueFd writer(ends[1]);
    for (const std::uintptr_t address : {buffer.address(), buffer.address() + buffer.size() - 1}) {
        // The kernel looks at it for us: EFAULT instead of a signal.
        errno = 0;
        EXPECT_EQ(::write(writer.get(), reinterpret_cast<const void*>(address), 1), -1);
        EXPECT_EQ(errno, EFAULT);
    }
}

TEST_F(VerbsDm, AsksForMemoryThatBeginsAtAPage) {
    // A device that can align to less than a page refuses that, and is asked again without.
    fail_next(alloc, EINVAL);
    const Buffer buffer = exporter().allocate(page_size());
    EXPECT_EQ(buffer.size(), page_size());
    EXPECT_TRUE(all_failed());
}

TEST_F(VerbsDm, CopiesWhateverTheAlignment) {
    constexpr std::size_t size = std::size_t{3} * 4096;
    const Buffer buffer = exporter().allocate(size);
    Bytes model = pattern(buffer.size(), 1);
    buffer.copy_in(0, model);
    Bytes host(size + 8);
    unsigned seed = 1;
    for (const std::size_t offset : {0U, 1U, 2U, 3U, 4U, 4093U, 4096U}) {
        for (const std::size_t length :
             {1U, 2U, 3U, 4U, 5U, 8U, 4092U, 4095U, 4096U, 4097U, 8191U}) {
            for (std::size_t shift = 0; shift < 4; ++shift) {
                const auto part = std::span(host).subspan(shift, length);
                fill(part, ++seed);
                buffer.copy_in(offset, part);
                std::ranges::copy(part, model.begin() + static_cast<std::ptrdiff_t>(offset));
                Bytes all(buffer.size());
                buffer.copy_out(0, all);
                ASSERT_EQ(all, model) << length << " bytes to " << offset << ", host " << shift;
                std::ranges::fill(host, std::byte{0});
                buffer.copy_out(offset, part);
                ASSERT_TRUE(std::ranges::equal(part, std::span(model).subspan(offset, length)))
                    << length << " bytes from " << offset << ", host " << shift;
                ASSERT_EQ(host[shift + length], std::byte{0});
            }
        }
    }
}

TEST_F(VerbsDm, TellsWhenTheProviderCannotCopy) {
    ASSERT_EQ(
        softverbs_set_features(0, softverbs_features(0) & ~unsigned{SOFTVERBS_FEATURE_DM_COPY}), 0);
    const Buffer buffer = exporter().allocate(1);
    Bytes bytes(8);
    EXPECT_THAT(error_of([&] { buffer.copy_in(0, bytes); }),
                fails_with("ibv_memcpy_to_dm", EOPNOTSUPP, "access the memory by RDMA"));
    EXPECT_THAT(error_of([&] { buffer.copy_out(1, bytes); }),
                fails_with("ibv_memcpy_from_dm", EOPNOTSUPP, "access the memory by RDMA"));
}

TEST_F(VerbsDm, AnExportedRangeKeepsTheMemory) {
    const Bytes written = pattern(page_size(), 5);
    std::optional<ExportedRange> range;
    {
        const Buffer buffer = exporter().allocate(page_size());
        buffer.copy_in(0, written);
        range = exporter().export_range(buffer.address(), page_size());
    }
    // Freed, it would be revoked.
    EXPECT_EQ(softverbs_live(SOFTVERBS_DM), 1U);
    EXPECT_EQ(bytes_through(*range, false), written);
    EXPECT_FALSE(exporter().find(range->address()));
    range.reset();
    EXPECT_EQ(softverbs_live(SOFTVERBS_DM), 0U);
}

TEST_F(VerbsDm, ABufferSurvivesItsExporterAndItsContext) {
    std::optional<Buffer> buffer;
    {
        const Context another = Context::open_first();
        buffer = make_verbs_dm_exporter(another)->allocate(page_size());
    }
    const Bytes written = pattern(page_size(), 6);
    buffer->copy_in(0, written);
    Bytes read(page_size());
    buffer->copy_out(0, read);
    EXPECT_EQ(read, written);
}

TEST_F(VerbsDm, NeedsANewerLibibverbsWhereItHasNoExport) {
    calls.replaced = true;
    const Availability found = exporter().availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("libibverbs has no ibv_dm_export_dmabuf_fd"));
    EXPECT_THAT(found.remedy, HasSubstr("rdma-core 62"));
    EXPECT_THAT(refusal(1), fails_with(export_call, ENOSYS, found.reason + "; " + found.remedy));
}

TEST_F(VerbsDm, NeedsADeviceWithMemory) {
    change_device([](ibv_device_attr_ex& device) { device.max_dm_size = 0; });
    for (const bool has_calls : {true, false}) {
        if (!has_calls) {
            remove_feature(SOFTVERBS_FEATURE_DM);
        }
        const Availability found = exporter().availability();
        EXPECT_FALSE(found);
        EXPECT_THAT(found.reason, HasSubstr("soft0, which reports no device memory"));
        EXPECT_THAT(found.remedy, HasSubstr("ConnectX-5 or newer"));
        EXPECT_THAT(refusal(1), fails_with(alloc, has_calls ? EINVAL : EOPNOTSUPP,
                                           found.reason + "; " + found.remedy));
        // What the context can do was decided when it was opened.
        exporter_.reset();
        basics_ = Basics();
    }
}

struct KernelRefusal {
    int error;
    const char* reason;
    const char* remedy;
};
constexpr std::array kernel_refusals{
    KernelRefusal{EPROTONOSUPPORT, "this kernel's uverbs cannot export", "Linux 7.0 or newer"},
    KernelRefusal{EOPNOTSUPP, "does not export its memory", "CONFIG_PCI_P2PDMA"},
    KernelRefusal{ENODEV, "cannot be exported: No such device (ENODEV)", ""},
};

TEST_F(VerbsDm, TellsWhyTheKernelDoesNotExport) {
    for (const KernelRefusal& told : kernel_refusals) {
        fail_next(export_call, told.error);
        const Availability found = exporter().availability();
        EXPECT_FALSE(found);
        EXPECT_THAT(found.reason, AllOf(HasSubstr("soft0"), HasSubstr(told.reason)));
        EXPECT_THAT(found.remedy, HasSubstr(told.remedy));
        fail_next(export_call, told.error);
        EXPECT_THAT(refusal(1), fails_with(export_call, told.error, found.reason));
        EXPECT_EQ(softverbs_live(SOFTVERBS_DM), 0U);
    }
}

TEST_F(VerbsDm, RefusesADmaBufInWhichItsPlaceIsNotKnown) {
    calls.replaced = true;
    calls.found = reinterpret_cast<void*>(&export_too_much);
    const std::string text = "a dma-buf of " + std::to_string(2 * page_size()) +
                             " bytes was returned for " + std::to_string(page_size()) + " bytes";
    EXPECT_THAT(refusal(1), fails_with(export_call, ENOTSUP, text));
    const Availability found = exporter().availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr(text));
    EXPECT_THAT(found.remedy, HasSubstr("DeviceMemoryMR"));
}

TEST_F(VerbsDm, IsAvailableWhileAllOfItIsInUse) {
    const Buffer all = exporter().allocate(16 * page_size());
    EXPECT_TRUE(exporter().availability());
    EXPECT_THAT(exporter().availability().reason, HasSubstr("soft0, which is all in use now"));
    EXPECT_THAT(refusal(1), fails_with(alloc, ENOMEM, "free memory on the NIC"));
}

TEST_F(VerbsDm, TellsHowMuchThereIsWhenAskedForMore) {
    EXPECT_THAT(refusal(17 * page_size()),
                fails_with(alloc, EINVAL, std::to_string(17 * page_size()) + " bytes"));
    EXPECT_THAT(refusal(17 * page_size()),
                fails_with(EINVAL, "reports " + std::to_string(16 * page_size()) +
                                       " bytes of device memory; allocate less memory"));
}

TEST_F(VerbsDm, LeaksNothingWhicheverCallFails) {
    exporter();
    for (const char* const call : {alloc, export_call}) {
        fail_next(call, ENOSPC);
        EXPECT_THAT(refusal(1), fails_with(call, ENOSPC, ""));
        EXPECT_EQ(softverbs_live(SOFTVERBS_DM), 0U);
    }
    const auto before = open_descriptors();
    calls.mmap_error = ENOMEM;
    EXPECT_THAT(refusal(1),
                fails_with("mmap", ENOMEM, "addresses for " + std::to_string(page_size())));
    const Availability found = exporter().availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("could not be reserved"));
    calls.mmap_error = 0;
    EXPECT_EQ(softverbs_live(SOFTVERBS_DM), 0U);
    {
        const Buffer buffer = exporter().allocate(1);
        calls.fcntl_error = EMFILE;
        EXPECT_THAT(error_of([&] { (void)exporter().export_range(buffer.address(), 1); }),
                    fails_with("fcntl", EMFILE, ""));
        calls.fcntl_error = 0;
    }
    EXPECT_EQ(softverbs_live(SOFTVERBS_DM), 0U);
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(VerbsDm, IsNoneOfTheSystemsExporters) {
    Resolver resolver = Resolver::system();
    EXPECT_THAT(error_of([&] { (void)resolver.exporter("verbs_dm"); }),
                fails_with(ENOENT, "verbs_dm"));
    exporter();
    resolver.add(exporter_);
    const Buffer buffer = resolver.allocator("verbs_dm")->allocate(1);
    EXPECT_EQ(resolver.find(buffer.address()).exporter, exporter_);
}

} // namespace
} // namespace rdmabuf::testing
