// SPDX-License-Identifier: BSD-3-Clause
// What only ROCm's memory can get wrong. The driver is a fake: this proves what we make of its
// answers, and not what AMD's answers.
#include <cerrno>
#include <limits>
#include <tuple>
#include <utility>

#include <rdmabuf/resolver.hpp>

#include "rocm_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* export_call = "hsa_amd_portable_export_dmabuf";
constexpr const char* pcie_call = "hsa_amd_portable_export_dmabuf_v2";
constexpr const char* close_call = "hsa_amd_portable_close_dmabuf";
constexpr const char* info_call = "hsa_amd_pointer_info";
constexpr const char* watch_call = "hsa_amd_register_deallocation_callback";

using RocmFinding = RocmTest;
using RocmGenerations = RocmTest;
using RocmRanges = RocmTest;
using RocmKinds = RocmTest;

TEST_F(RocmFinding, TellsKindDeviceAndExtent) {
    const std::size_t size = 3 * page_size();
    const std::vector<std::pair<FakeRocmKind, MemoryKind>> kinds{
        {FakeRocmKind::device, MemoryKind::device},
        {FakeRocmKind::host, MemoryKind::pinned_host},
        {FakeRocmKind::locked, MemoryKind::pinned_host},
        {FakeRocmKind::ipc, MemoryKind::device},
        {FakeRocmKind::graphics, MemoryKind::device},
    };
    for (const auto& [made, kind] : kinds) {
        const std::uint64_t address = make(made, size, 1);
        const auto found = exporter_->find(address + size - 1);
        ASSERT_TRUE(found) << to_string(kind);
        EXPECT_EQ(found->kind, kind);
        EXPECT_EQ(found->base, address);
        EXPECT_EQ(found->length, size);
        EXPECT_EQ(found->pci_address, kind == MemoryKind::device ? "0000:3c:00.0" : "");
        EXPECT_FALSE(exporter_->find(address + size));
        fake_rocm_free(address);
    }
}

TEST_F(RocmFinding, ExportsNothingAndAsksOnceForWhatIsNotHsas) {
    const std::uint64_t address = make(FakeRocmKind::device);
    const auto before = open_descriptors();
    EXPECT_TRUE(exporter_->find(address));
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(fake_rocm_calls(export_call), 0U);

    const int local = 0;
    const unsigned calls = fake_rocm_all_calls();
    EXPECT_FALSE(exporter_->find(reinterpret_cast<std::uintptr_t>(&local)));
    EXPECT_EQ(fake_rocm_all_calls(), calls + 1);
    EXPECT_FALSE(exporter_->find(make(FakeRocmKind::reserved))) << "there is no memory";
}

TEST_F(RocmFinding, DriverErrorIsNotTheAnswerThatMemoryIsNotHsas) {
    const std::uint64_t address = make(FakeRocmKind::device);
    fake_rocm_fail(info_call, 1, abi::general_error);
    const auto error = error_of([&] { (void)exporter_->find(address); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EIO);
    EXPECT_STREQ(error->function(), info_call);
    EXPECT_TRUE(exporter_->find(address));
    EXPECT_FALSE(exporter_->find(0)) << "the driver refuses it as an argument";
}

TEST_F(RocmFinding, WorksWithADriverThatTellsLess) {
    const std::uint64_t address = make(FakeRocmKind::device);
    fake_rocm_set_short_info(true);
    const auto found = exporter_->find(address);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->length, page_size());
    EXPECT_EQ(found->pci_address, "");
}

TEST_F(RocmFinding, ComesBeforeTheExportersOfSystemMemory) {
    const Resolver resolver = Resolver::system();
    const std::uint64_t address = make(FakeRocmKind::device);
    EXPECT_EQ(resolver.find(address).exporter->name(), "rocm");
    for (const auto& exporter : resolver.exporters()) {
        if (exporter->name() == "rocm") {
            break;
        }
        EXPECT_THAT(exporter->name(),
                    ::testing::Not(::testing::AnyOf("drm", "dma_heap", "udmabuf")));
    }
}

// Generations

TEST_F(RocmGenerations, StayWithAnAllocationAndEndWithIt) {
    const std::uint64_t address = make(FakeRocmKind::device, 2 * page_size());
    const auto first = exporter_->find(address);
    ASSERT_TRUE(first);
    EXPECT_EQ(exporter_->find(address + page_size())->generation, first->generation);
    EXPECT_EQ(make_rocm_exporter()->find(address)->generation, first->generation);
    EXPECT_EQ(fake_rocm_watched(), 1U) << "once is enough";
    fake_rocm_free(address);
    EXPECT_FALSE(exporter_->find(address));
    const auto error = refusal(address, 1);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EFAULT);
    EXPECT_THAT(error->what(), HasSubstr("not been freed"));
    ASSERT_EQ(make(FakeRocmKind::device, 2 * page_size()), address);
    EXPECT_NE(exporter_->find(address)->generation, first->generation);
}

TEST_F(RocmGenerations, BelongToWhatIsThereWhenAnotherThreadFreesBetweenTwoCalls) {
    const std::vector<std::pair<const char*, bool>> moments{
        {info_call, false}, {info_call, true}, {watch_call, false}};
    for (const auto& [function, known] : moments) {
        const std::uint64_t address = make(FakeRocmKind::device);
        const std::uint64_t before = known ? exporter_->find(address)->generation : 0;
        fake_rocm_free_before(function, address, true);
        const auto found = exporter_->find(address);
        ASSERT_TRUE(found);
        EXPECT_NE(found->generation, before) << function;
        EXPECT_EQ(exporter_->find(address)->generation, found->generation) << function;
        fake_rocm_free(address);
        EXPECT_EQ(fake_rocm_watched(), 0U);
    }
}

TEST_F(RocmGenerations, DoNotChangeAtEachLookAtMemoryWhoseEndIsNotReported) {
    fake_rocm_set_mute(true);
    for (const auto kind : {FakeRocmKind::device, FakeRocmKind::locked, FakeRocmKind::ipc}) {
        const std::uint64_t address = make(kind);
        for (int look = 0; look < 2; ++look) {
            const auto found = exporter_->find(address);
            ASSERT_TRUE(found);
            EXPECT_EQ(found->generation, 0U) << "HSA does not say";
        }
    }
}

TEST_F(RocmGenerations, OfMemoryThatWentWithoutAWordDoNotHideWhatIsThereNow) {
    const std::uint64_t first = make(FakeRocmKind::device);
    const std::uint64_t second = make(FakeRocmKind::device);
    ASSERT_TRUE(exporter_->find(first) && exporter_->find(second));
    fake_rocm_free(first);
    fake_rocm_lose(second);
    const std::uint64_t both = make(FakeRocmKind::device, second - first + page_size());
    ASSERT_EQ(both, first);
    const auto found = exporter_->find(second);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, both);
    EXPECT_EQ(exporter_->find(both)->generation, found->generation);
}

TEST_F(RocmGenerations, OutliveAProgramThatShutsHsaDown) {
    const std::uint64_t address = make(FakeRocmKind::device);
    const auto first = exporter_->find(address);
    // Without the exporter, this would be the end of all memory, and nobody would be told.
    ASSERT_EQ(hsa_shut_down(), abi::success);
    EXPECT_EQ(exporter_->find(address)->generation, first->generation);
    ASSERT_EQ(hsa_init(), abi::success);
    EXPECT_EQ(exporter_->find(address)->generation, first->generation);

    exporter_.reset();
    ASSERT_EQ(hsa_shut_down(), abi::success);
    EXPECT_EQ(fake_rocm_live(), 0U);
    ASSERT_EQ(hsa_init(), abi::success);
    ASSERT_EQ(make(FakeRocmKind::device), address);
    EXPECT_NE(make_rocm_exporter()->find(address)->generation, first->generation);
}

// Ranges

TEST_F(RocmRanges, LieWhereTheDriverSaysInABlockThatOthersShare) {
    fake_rocm_set_packed(true);
    const std::uint64_t first = make(FakeRocmKind::device, 1000);
    const std::uint64_t second = make(FakeRocmKind::device, 3 * page_size());
    ASSERT_NE(second % page_size(), 0U);
    put(first, 1000, 1);
    const auto expected = put(second, 3 * page_size(), 2);
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, page_size() + 13}) {
        for (const std::size_t length :
             {std::size_t{1}, page_size() + 1, 3 * page_size() - offset}) {
            const ExportedRange range = exporter_->export_range(second + offset, length);
            EXPECT_EQ(range.offset() % page_size(), (second + offset) % page_size());
            EXPECT_EQ(range.length(), length);
            EXPECT_EQ(range.address(), second + offset);
            const auto start = expected.begin() + static_cast<std::ptrdiff_t>(offset);
            EXPECT_EQ(bytes_of(range),
                      std::vector(start, start + static_cast<std::ptrdiff_t>(length)));
        }
    }
    const auto found = exporter_->find(second + 1);
    EXPECT_EQ(found->base, second);
    EXPECT_EQ(found->length, 3 * page_size());
    // The block goes on, and the allocation is the limit.
    const auto error = refusal(second + 1, 3 * page_size());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ERANGE);
}

TEST_F(RocmRanges, DoNotSpanAllocationsThatLieSideBySide) {
    for (const bool packed : {false, true}) {
        fake_rocm_set_packed(packed);
        const std::uint64_t first = make(FakeRocmKind::device, page_size());
        const std::uint64_t second = make(FakeRocmKind::device, page_size());
        ASSERT_EQ(second, first + page_size());
        for (const std::size_t length : {page_size(), std::numeric_limits<std::size_t>::max()}) {
            const auto error = refusal(first + 1, length);
            ASSERT_TRUE(error);
            EXPECT_EQ(error->error(), ERANGE);
        }
        EXPECT_EQ(fake_rocm_calls(export_call), 0U) << "the driver might have allowed it";
    }
}

TEST_F(RocmRanges, GoBackToTheDriverOnceEach) {
    const std::uint64_t address = make(FakeRocmKind::device);
    {
        ExportedRange range = exporter_->export_range(address, 1);
        const ExportedRange moved = std::move(range);
        const ExportedRange another = exporter_->export_range(address, 1);
        EXPECT_EQ(fake_rocm_open_exports(), 2U);
        fake_rocm_free(address);
        EXPECT_EQ(fake_rocm_calls(close_call), 0U);
    }
    EXPECT_EQ(fake_rocm_calls(close_call), 2U);
    EXPECT_EQ(fake_rocm_open_exports(), 0U);
}

TEST_F(RocmRanges, GoBackToTheDriverWhateverFailsBehindTheExport) {
    const std::uint64_t address = make(FakeRocmKind::device, 2 * page_size());
    (void)exporter_->export_range(address, 1);
    const auto gone_back = [&](unsigned closed) {
        EXPECT_EQ(fake_rocm_open_exports(), 0U);
        EXPECT_EQ(fake_rocm_calls(close_call), closed);
    };
    fake_rocm_set_shortfall(page_size());
    const auto cut = refusal(address + 1, page_size());
    ASSERT_TRUE(cut);
    EXPECT_EQ(cut->error(), ERANGE);
    EXPECT_THAT(cut->what(), AllOf(HasSubstr("has " + std::to_string(page_size()) + " bytes"),
                                   HasSubstr("offset 1 ")));
    gone_back(2);
    EXPECT_FALSE(refusal(address + 1, page_size() - 1)) << "so much is there";
    fake_rocm_set_shortfall(0);

    fake_rocm_set_displacement(512);
    const auto displaced = refusal(address, 1);
    ASSERT_TRUE(displaced);
    EXPECT_EQ(displaced->error(), EIO);
    EXPECT_THAT(displaced->what(), HasSubstr("another position in a page"));
    gone_back(4);
    for (const std::uint64_t far :
         {std::uint64_t{2 * page_size()},
          std::numeric_limits<std::uint64_t>::max() / page_size() * page_size()}) {
        fake_rocm_set_displacement(far);
        const auto error = refusal(address, 1);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), ERANGE) << far;
    }
    gone_back(6);
}

TEST_F(RocmRanges, KeepHsaUntilTheyHaveGoneBack) {
    const std::uint64_t address = make(FakeRocmKind::device);
    {
        const ExportedRange range = exporter_->export_range(address, 1);
        exporter_.reset();
        ASSERT_EQ(hsa_shut_down(), abi::success);
        EXPECT_EQ(fake_rocm_references(), 1U);
    }
    EXPECT_EQ(fake_rocm_calls(close_call), 1U);
    EXPECT_EQ(fake_rocm_references(), 0U);
    ASSERT_EQ(hsa_init(), abi::success);
}

TEST_F(RocmRanges, ThatTheDriverCannotCloseAreReported) {
    const std::uint64_t address = make(FakeRocmKind::device);
    const TeardownFailures failures;
    int fd = -1;
    {
        const ExportedRange range = exporter_->export_range(address, 1);
        fd = range.fd();
        fake_rocm_fail(close_call, 1, abi::resource_free);
    }
    EXPECT_THAT(TeardownFailures::seen(), ::testing::ElementsAre(TeardownFailures::Failure(
                                              "hsa_amd_portable_close_dmabuf", EIO)));
    EXPECT_EQ(hsa_amd_portable_close_dmabuf(fd), abi::success);
}

TEST_F(RocmRanges, ThatAreFreedMeanwhileAreNoRanges) {
    for (const bool again : {false, true}) {
        const std::uint64_t address = make(FakeRocmKind::device);
        fake_rocm_free_before(export_call, address, again);
        fake_rocm_fail(export_call, 1, abi::invalid_allocation);
        const auto error = refusal(address, 1);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EFAULT);
        EXPECT_THAT(error->what(),
                    HasSubstr(again ? "belongs to another allocation now" : "not been freed"));
        fake_rocm_free(address);
    }
}

TEST_F(RocmRanges, TellWhatTheDriverSays) {
    const std::uint64_t address = make(FakeRocmKind::device);
    const std::vector<std::tuple<int, int, const char*>> answers{
        {abi::invalid_allocation, EFAULT, "HSA_STATUS_ERROR_INVALID_ALLOCATION (0x1003)"},
        {abi::invalid_agent, EOPNOTSUPP, "HSA_STATUS_ERROR_INVALID_AGENT (0x1004)"},
        {abi::out_of_resources, ENOMEM, "HSA_STATUS_ERROR_OUT_OF_RESOURCES (0x1008)"},
        {abi::general_error, EIO, "HSA_STATUS_ERROR (0x1000)"},
        {0x1234, EIO, "unknown status (0x1234)"},
    };
    for (const auto& [status, number, text] : answers) {
        fake_rocm_fail(export_call, 1, status);
        const auto error = refusal(address + 1, 2);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), number) << text;
        EXPECT_STREQ(error->function(), export_call);
        EXPECT_THAT(error->what(), AllOf(HasSubstr(text), HasSubstr("of 0000:3b:00.0")));
    }
    fake_rocm_fail(export_call, 1, abi::out_of_resources);
    EXPECT_THAT(refusal(address, 1)->what(), HasSubstr("ulimit -n"));
}

TEST_F(RocmRanges, NeedADescriptorThatIsClosedOnExec) {
    const std::uint64_t address = make(FakeRocmKind::device);
    fake_rocm_set_inheritable(true);
    EXPECT_TRUE(closed_on_exec(exporter_->export_range(address, 1).fd()));
    fake_rocm_set_no_descriptor(true);
    const auto error = refusal(address, 1);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EIO);
    EXPECT_THAT(error->what(), HasSubstr("returned no descriptor"));
}

TEST_F(RocmRanges, GoThroughTheBarWhereTheDeviceHasOneThatReaches) {
    const std::uint64_t address = make(FakeRocmKind::device);
    const auto expected = put(address, page_size(), 3);
    const ExportedRange range = exporter_->export_range(address, page_size(), MappingKind::pcie);
    EXPECT_EQ(range.mapping(), MappingKind::pcie);
    EXPECT_EQ(bytes_of(range), expected);
    EXPECT_EQ(fake_rocm_calls(export_call), 0U);
    EXPECT_EQ(exporter_->export_range(address, 1).mapping(), MappingKind::standard);
    EXPECT_EQ(fake_rocm_calls(pcie_call), 1U);
}

TEST_F(RocmRanges, FallBackFromTheBarWhereTheDeviceHasASmallOne) {
    const std::uint64_t address = make(FakeRocmKind::device);
    const auto expected = put(address, page_size(), 4);
    fake_rocm_set_pcie(abi::not_supported);
    {
        const ExportedRange range =
            exporter_->export_range(address, page_size(), MappingKind::pcie);
        EXPECT_EQ(range.mapping(), MappingKind::standard);
        EXPECT_EQ(bytes_of(range), expected);
    }
    const unsigned calls = fake_rocm_calls(export_call);
    fake_rocm_set_pcie(abi::out_of_resources);
    const auto error = refusal(address, 1, MappingKind::pcie);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOMEM);
    EXPECT_EQ(fake_rocm_calls(export_call), calls) << "that is no answer about the path";
}

TEST_F(RocmRanges, LeaveNoDescriptorsIn10000Cycles) {
    const std::uint64_t address = make(FakeRocmKind::device, 4 * page_size());
    (void)exporter_->export_range(address + 5, page_size());
    const auto before = open_descriptors();
    for (int cycle = 0; cycle < 10'000; ++cycle) {
        const ExportedRange range = exporter_->export_range(address + 5, page_size());
        ASSERT_GE(range.fd(), 0);
    }
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(fake_rocm_calls(close_call), 10'001U);
}

// Kinds of memory

TEST_F(RocmKinds, OfTheHostAreRefusedWithWhatToUse) {
    for (const auto kind : {FakeRocmKind::host, FakeRocmKind::locked}) {
        const auto error = refusal(make(kind), 1);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EOPNOTSUPP);
        EXPECT_THAT(error->what(), AllOf(HasSubstr("host memory"), HasSubstr("MemoryRegion")));
    }
    EXPECT_EQ(fake_rocm_calls(export_call), 0U);
}

TEST_F(RocmKinds, MappedToAddressesAreFoundByThePageAndRefusedWithWhatToUse) {
    // HSA calls each address the beginning of the mapping, and tells the length of all of it.
    const std::uint64_t address = make(FakeRocmKind::mapped, 4 * page_size(), 1);
    const std::uint64_t inside = address + page_size() + 7;
    const auto found = exporter_->find(inside);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, MemoryKind::device);
    EXPECT_EQ(found->base, address + page_size());
    EXPECT_EQ(found->length, page_size());
    EXPECT_EQ(found->generation, 0U);
    EXPECT_EQ(found->pci_address, "0000:3c:00.0");
    const auto error = refusal(inside, 1);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EOPNOTSUPP);
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr("hipMemMap"), HasSubstr("hipMemExportToShareableHandle")));
    EXPECT_EQ(fake_rocm_calls(export_call), 0U);
}

TEST_F(RocmKinds, ThatOthersMadeAreRefusedBeforeTheDriverIsAsked) {
    // It would end the program.
    const auto ipc = refusal(make(FakeRocmKind::ipc), 1);
    ASSERT_TRUE(ipc);
    EXPECT_EQ(ipc->error(), EOPNOTSUPP);
    EXPECT_THAT(ipc->what(), HasSubstr("hipIpcOpenMemHandle"));
    const auto graphics = refusal(make(FakeRocmKind::graphics), 1);
    ASSERT_TRUE(graphics);
    EXPECT_EQ(graphics->error(), EOPNOTSUPP);
    EXPECT_THAT(graphics->what(), HasSubstr("of a graphics driver"));
    const auto reserved = refusal(make(FakeRocmKind::reserved), 1);
    ASSERT_TRUE(reserved);
    EXPECT_EQ(reserved->error(), EFAULT);
    EXPECT_THAT(reserved->what(), HasSubstr("hipMallocManaged"));
    EXPECT_EQ(fake_rocm_calls(export_call), 0U);
}

TEST_F(RocmKinds, AreNotExportedByAKernelThatHasNoDmaBufs) {
    const std::uint64_t address = make(FakeRocmKind::device);
    fake_rocm_set_dmabufs(false);
    const auto error = refusal(address, 1);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EOPNOTSUPP);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("does not export dma-bufs"), HasSubstr("KFD")));
    EXPECT_FALSE(exporter_->availability());
    EXPECT_EQ(exporter_->find(address)->kind, MemoryKind::device);
    EXPECT_EQ(fake_rocm_calls(export_call), 0U);
}

} // namespace
} // namespace rdmabuf::testing
