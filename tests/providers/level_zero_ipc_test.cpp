// SPDX-License-Identifier: BSD-3-Clause
// Memory that was not allocated for export, exported by its IPC handle. The loader has the function
// that returns the descriptor of a handle.
#include <array>

#include "drivers/driver_fixture.hpp"
#include "fake_level_zero.hpp"
#include "level_zero/level_zero_exporter.hpp"

namespace rdmabuf::testing {
namespace {

namespace abi = detail::level_zero;
using fake::Kind;
using ::testing::ElementsAre;
using ::testing::Pair;

constexpr const char* descriptor_call = "zeMemGetFileDescriptorFromIpcHandleExp";

detail::ProcessDriver<abi::Driver>& newer_loader() {
    static constexpr std::array names{NEWER_LOADER};
    static auto* const loader =
        new detail::ProcessDriver<abi::Driver>(names, "newer Level Zero loader", "build it");
    return *loader;
}

class LevelZeroIpc : public DriverTest {
  protected:
    LevelZeroIpc() {
        exporter_ = abi::make_exporter(newer_loader(), {.contexts = {fake::program_context()}});
    }
    static std::uint64_t make_undescribed(std::size_t size = page_size()) {
        return make(Kind::device, size, 0, false);
    }
};

TEST_F(LevelZeroIpc, LeadsToTheDmaBufAndIsReturned) {
    const std::uint64_t address = make_undescribed(2 * page_size());
    const auto expected = put(address, 2 * page_size(), 1);
    for (int time = 0; time < 2; ++time) {
        const ExportedRange range = exporter_->export_range(address + 9, 2 * page_size() - 9);
        EXPECT_EQ(range.offset(), 9U);
        EXPECT_TRUE(closed_on_exec(range.fd()));
        EXPECT_EQ(fake_level_zero::ipc_handles(), 0U);
        EXPECT_EQ(fake_level_zero::kept_descriptor(address), -1)
            << "the driver closed it with the handle";
        EXPECT_EQ(bytes_of(range), std::vector(expected.begin() + 9, expected.end()));
    }
}

TEST_F(LevelZeroIpc, IsNotTriedForMemoryThatWasAllocatedForExport) {
    const std::uint64_t address = make();
    EXPECT_FALSE(refusal(address));
    EXPECT_EQ(fake::calls("zeMemGetIpcHandle"), 0U);
}

TEST_F(LevelZeroIpc, ThatTheDriverRefusesIsReportedWithHowToAllocate) {
    const std::uint64_t address = make_undescribed();
    for (const char* const function : {"zeMemGetIpcHandle", descriptor_call}) {
        fake::fail(function, abi::unsupported_feature);
        EXPECT_THAT(refusal(address),
                    fails_with(function, EOPNOTSUPP, "ze_external_memory_export_desc_t"));
        EXPECT_EQ(fake_level_zero::ipc_handles(), 0U);
    }
}

TEST_F(LevelZeroIpc, WithoutADescriptorIsRefused) {
    const std::uint64_t address = make_undescribed();
    fake::set(fake::Setting::no_descriptor, 1);
    EXPECT_THAT(refusal(address),
                fails_with(EIO, "18446744073709551615, which is not a descriptor"));
}

TEST_F(LevelZeroIpc, ThatCannotBeReturnedIsReportedAndTheRangeIsExported) {
    const std::uint64_t address = make_undescribed();
    const TeardownFailures failures;
    fake::fail("zeMemPutIpcHandle", abi::invalid_argument);
    EXPECT_FALSE(refusal(address));
    EXPECT_THAT(TeardownFailures::seen(), ElementsAre(Pair("zeMemPutIpcHandle", EIO)));
    EXPECT_EQ(fake_level_zero::ipc_handles(), 1U);
    fake::free(address);
}

TEST_F(LevelZeroIpc, OfMemoryThatIsFreedDuringTheExportIsRefused) {
    for (const bool again : {false, true}) {
        const std::uint64_t address = make_undescribed();
        fake::free_before(descriptor_call, address, again);
        // The handle was freed with the memory, so that returning the handle fails.
        const TeardownFailures failures;
        EXPECT_THAT(refusal(address), fails_with(EFAULT, again ? "belongs to another allocation now"
                                                               : "not been freed"));
        fake::free(address);
    }
}

} // namespace
} // namespace rdmabuf::testing
