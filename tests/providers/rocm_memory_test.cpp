// SPDX-License-Identifier: BSD-3-Clause
// What only ROCm has: notifications of freed memory, mapped memory, and references of the process
// to HSA.
#include <array>
#include <limits>
#include <utility>

#include <rdmabuf/providers/rocm.hpp>

#include "drivers/driver_fixture.hpp"
#include "rocm_calls.hpp"

namespace rdmabuf::testing {
namespace {

namespace abi = detail::rocm;
using fake::Kind;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* info_call = "hsa_amd_pointer_info";
constexpr const char* watch_call = "hsa_amd_register_deallocation_callback";

using RocmFinding = DriverTest;
using RocmGenerations = DriverTest;
using RocmRanges = DriverTest;
using RocmDriver = DriverTest;

TEST_F(RocmFinding, DoesNotFindNull) {
    EXPECT_FALSE(exporter_->find(0)) << "the driver refuses this argument";
}

// HSA finds pinned memory by whole pages, and reports where it begins and ends in them.
TEST_F(RocmFinding, DoesNotFindOtherHostMemoryInAPageThatIsPinnedInPart) {
    fake::set(fake::Setting::no_extent, 1);
    const std::uint64_t address = make(Kind::locked);
    EXPECT_FALSE(exporter_->find(address));
    EXPECT_THAT(refusal(address), fails_with(EFAULT, "not in any live allocation of rocm"));
}

TEST_F(RocmFinding, WorksWithADriverThatReportsLess) {
    const std::uint64_t address = make();
    fake::set(fake::Setting::short_pointer_info, 1);
    const auto found = exporter_->find(address);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->length, page_size());
    EXPECT_EQ(found->pci_address, "");
}

TEST_F(RocmFinding, FindsMappedMemoryByThePage) {
    // HSA reports each address as the start of the mapping, and the length of the whole mapping.
    const std::uint64_t address = make(Kind::mapped, 4 * page_size(), 1);
    const auto found = exporter_->find(address + page_size() + 7);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, MemoryKind::device);
    EXPECT_EQ(found->base, address + page_size());
    EXPECT_EQ(found->length, page_size());
    EXPECT_EQ(found->generation, 0U);
    EXPECT_EQ(found->pci_address, "0000:3c:00.0");
}

// hipMallocAsync maps memory, too. Before HSA AMD extension 1.12, the runtime reports the
// reservation around a mapping, which belongs to the CPU, and not whether memory is mapped
// (hsakmt_fmm_get_mem_info() of ROCr).
TEST_F(RocmFinding, TakesReservedAddressesForDeviceMemory) {
    fake::set(fake::Setting::mapped_as_reserved, 1);
    for (const auto kind : {Kind::mapped, Kind::reserved}) {
        const std::uint64_t address = make(kind, 4 * page_size(), 1);
        const auto found = exporter_->find(address + page_size() + 7);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->kind, MemoryKind::device);
        EXPECT_EQ(found->base, address + page_size());
        EXPECT_EQ(found->length, page_size());
        EXPECT_EQ(found->pci_address, "");
        EXPECT_THAT(refusal(address), fails_with(EOPNOTSUPP, "hipMallocAsync"));
    }
    // Host memory of an APU has this type, too, and an address for the host
    // (fmm_allocate_host_cpu() of ROCr).
    const std::uint64_t host = make(Kind::host, 2 * page_size());
    const auto found = exporter_->find(host + page_size());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, MemoryKind::pinned_host);
    EXPECT_EQ(found->base, host);
}

TEST_F(RocmGenerations, AreSharedByExportersWithOneNotification) {
    const std::uint64_t address = make();
    const auto first = exporter_->find(address);
    ASSERT_TRUE(first);
    EXPECT_EQ(make_rocm_exporter()->find(address)->generation, first->generation);
    EXPECT_EQ(fake::notifiers(), 1U);
}

TEST_F(RocmGenerations, BelongToTheNewMemoryWhenAnotherThreadFreesBetweenTwoCalls) {
    for (const auto& [function, known] :
         {std::pair{info_call, false}, std::pair{info_call, true}, std::pair{watch_call, false}}) {
        const std::uint64_t address = make();
        const std::uint64_t before = known ? exporter_->find(address)->generation : 0;
        fake::free_before(function, address, true);
        const auto found = exporter_->find(address);
        ASSERT_TRUE(found);
        EXPECT_NE(found->generation, before) << function;
        EXPECT_EQ(exporter_->find(address)->generation, found->generation) << function;
        fake::free(address);
        EXPECT_EQ(fake::notifiers(), 0U);
    }
}

TEST_F(RocmGenerations, Are0ForMemoryWhoseFreeIsNotReported) {
    fake::set(fake::Setting::unreported_frees, 1);
    for (const auto kind : {Kind::device, Kind::locked, Kind::ipc}) {
        const std::uint64_t address = make(kind);
        for (int time = 0; time < 2; ++time) {
            const auto found = exporter_->find(address);
            ASSERT_TRUE(found);
            EXPECT_EQ(found->generation, 0U);
        }
    }
}

TEST_F(RocmGenerations, OfMemoryThatWasFreedWithoutANotificationDoNotHideNewMemory) {
    const std::uint64_t first = make();
    const std::uint64_t second = make();
    ASSERT_TRUE(exporter_->find(first) && exporter_->find(second));
    fake::free(first);
    fake::free_unreported(second);
    const std::uint64_t both = make(Kind::device, second - first + page_size());
    ASSERT_EQ(both, first);
    const auto found = exporter_->find(second);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, both);
    EXPECT_EQ(exporter_->find(both)->generation, found->generation);
}

TEST_F(RocmGenerations, SurviveAProgramThatShutsHsaDown) {
    const std::uint64_t address = make();
    const auto first = exporter_->find(address);
    // The reference of the exporter keeps the memory.
    ASSERT_EQ(hsa_shut_down(), abi::success);
    EXPECT_EQ(exporter_->find(address)->generation, first->generation);
    ASSERT_EQ(hsa_init(), abi::success);
    EXPECT_EQ(exporter_->find(address)->generation, first->generation);

    exporter_.reset();
    allocator_.reset();
    ASSERT_EQ(hsa_shut_down(), abi::success);
    ASSERT_EQ(hsa_init(), abi::success);
    ASSERT_EQ(make(), address) << "the memory of the program was freed";
    EXPECT_NE(make_rocm_exporter()->find(address)->generation, first->generation);
}

TEST_F(RocmRanges, AreCheckedAgainstTheDmaBuf) {
    const std::uint64_t address = make(Kind::device, 2 * page_size());
    const auto bytes = static_cast<std::int64_t>(page_size());
    fake::set(fake::Setting::shortfall, bytes);
    EXPECT_THAT(refusal(address + 1, page_size()), fails_with(ERANGE, "offset 1 "));
    EXPECT_FALSE(refusal(address + 1, page_size() - 1)) << "the dma-buf contains this part";
    fake::set(fake::Setting::shortfall, 0);
    fake::set(fake::Setting::displacement, 512);
    EXPECT_THAT(refusal(address), fails_with(EIO, "another position in a page"));
    const auto largest = static_cast<std::int64_t>(std::numeric_limits<std::uint64_t>::max() /
                                                   page_size() * page_size());
    for (const std::int64_t displacement : {2 * bytes, largest}) {
        fake::set(fake::Setting::displacement, displacement);
        EXPECT_THAT(refusal(address), fails_with(ERANGE)) << displacement;
    }
}

// hsa_memory_copy pins both sides of a copy for writing (Runtime::CopyMemory() of ROCr).
TEST_F(RocmDriver, CopiesFromMemoryThatCannotBeWritten) {
    static constexpr std::array<std::byte, 8> constants{std::byte{1}, std::byte{2}, std::byte{3}};
    const Buffer buffer = allocator_->allocate(100);
    buffer.copy_in(5, constants);
    std::array<std::byte, 8> found{};
    buffer.copy_out(5, found);
    EXPECT_EQ(found, constants);
}

TEST_F(RocmDriver, IsShutDownAsOftenAsItIsInitialised) {
    exporter_.reset();
    for (int time = 0; time < 3; ++time) {
        EXPECT_TRUE(allocator_->availability());
    }
    EXPECT_EQ(fake::references(), 2U) << "the program's and the exporter's";
    {
        const Buffer buffer = allocator_->allocate(1);
        allocator_.reset();
        EXPECT_EQ(fake::references(), 2U);
    }
    EXPECT_EQ(fake::references(), 1U);
    EXPECT_EQ(fake::calls("hsa_shut_down") + 1, fake::calls("hsa_init"));
}

TEST_F(RocmDriver, ThatCannotBeInitialisedIsReported) {
    fake::fail("hsa_init", abi::out_of_resources);
    const Availability found = allocator_->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("HSA_STATUS_ERROR_OUT_OF_RESOURCES (0x1008)"));
    EXPECT_THAT(found.remedy, AllOf(HasSubstr("/dev/kfd"), HasSubstr("rocminfo")));
    EXPECT_TRUE(allocator_->availability()) << "the next call initialises HSA";
}

TEST_F(RocmDriver, ReportsWhichQueryFailed) {
    fake::fail("hsa_iterate_agents", abi::general_error);
    EXPECT_THAT(allocator_->availability().reason, HasSubstr("HSA_STATUS_ERROR (0x1000)"));
    fake::fail("hsa_system_get_info", abi::invalid_argument);
    EXPECT_THAT(allocator_->availability().reason,
                AllOf(HasSubstr("does not export dma-bufs"), HasSubstr("INVALID_ARGUMENT")));
    fake::fail("hsa_memory_copy", abi::general_error, 2);
    const Buffer buffer = allocator_->allocate(100);
    std::vector<std::byte> bytes(8);
    buffer.copy_in(0, bytes);
    EXPECT_THAT(error_of([&] { buffer.copy_out(0, bytes); }),
                fails_with(EIO, "(0x1000)", "copied from the device"));
    fake::set(fake::Setting::fine_grained_only, 1);
    EXPECT_THAT(refusal_to_allocate(),
                fails_with(ENODEV, "0000:3b:00.0 has no coarse-grained pool"));
}

} // namespace
} // namespace rdmabuf::testing
