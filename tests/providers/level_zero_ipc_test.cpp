// SPDX-License-Identifier: BSD-3-Clause
// Memory that was not allocated for export, by its IPC handle: with a loader that can tell the
// handle's descriptor.
#include <array>
#include <cerrno>

#include "level_zero/level_zero_exporter.hpp"
#include "level_zero_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using enum FakeLevelZeroKind;

constexpr const char* descriptor_call = "zeMemGetFileDescriptorFromIpcHandleExp";

detail::ProcessDriver<abi::Driver>& younger_loader() {
    static constexpr std::array names{YOUNGER_LOADER};
    static auto* const loader =
        new detail::ProcessDriver<abi::Driver>(names, "newer Level Zero loader", "build it");
    return *loader;
}

class LevelZeroIpc : public LevelZeroTest {
  protected:
    LevelZeroIpc() { exporter_ = abi::make_exporter(younger_loader(), with_context()); }
};

TEST_F(LevelZeroIpc, LeadsToTheDmaBufAndIsGivenBack) {
    const std::uint64_t address = make_undescribed(device, 2 * page_size());
    const auto expected = put(address, 2 * page_size(), 1);
    for (int time = 0; time < 2; ++time) {
        const ExportedRange range = exporter_->export_range(address + 9, 2 * page_size() - 9);
        EXPECT_EQ(range.offset(), 9U);
        EXPECT_TRUE(closed_on_exec(range.fd()));
        EXPECT_EQ(fake_level_zero_ipc_handles(), 0U);
        EXPECT_EQ(fake_level_zero_descriptor(address), -1) << "it went with the handle";
        EXPECT_EQ(bytes_of(range), std::vector(expected.begin() + 9, expected.end()));
    }
}

TEST_F(LevelZeroIpc, IsNotTriedForMemoryThatWasAllocatedForExport) {
    const std::uint64_t address = make(device);
    EXPECT_FALSE(refusal(address));
    EXPECT_EQ(fake_level_zero_calls("zeMemGetIpcHandle"), 0U);
}

TEST_F(LevelZeroIpc, OfAPoolIsRefusedSinceItsOffsetIsTheDriversSecret) {
    const std::uint64_t address =
        fake_level_zero_make_pooled(4 * page_size(), page_size(), page_size());
    const auto error = refusal(address);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EOPNOTSUPP);
    EXPECT_THAT(error->what(), AllOf(HasSubstr(std::to_string(4 * page_size()) + " bytes"),
                                     HasSubstr("ze_external_memory_export_desc_t")));
}

TEST_F(LevelZeroIpc, ThatTheDriverRefusesIsToldWithHowToAllocate) {
    const std::uint64_t address = make_undescribed(device);
    for (const char* const function : {"zeMemGetIpcHandle", descriptor_call}) {
        fake_level_zero_fail(function, 1, abi::unsupported_feature);
        const auto error = refusal(address);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EOPNOTSUPP);
        EXPECT_STREQ(error->function(), function);
        EXPECT_THAT(error->what(), HasSubstr("ze_external_memory_export_desc_t"));
        EXPECT_EQ(fake_level_zero_ipc_handles(), 0U);
    }
}

TEST_F(LevelZeroIpc, HasADescriptorOrNone) {
    const std::uint64_t address = make_undescribed(device);
    fake_level_zero_set_no_descriptor(true);
    const auto error = refusal(address);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EIO);
    EXPECT_THAT(error->what(), HasSubstr("18446744073709551615, which is not a descriptor"));
}

TEST_F(LevelZeroIpc, ThatCannotBeGivenBackIsReportedAndTheRangeIsThere) {
    const std::uint64_t address = make_undescribed(device);
    const TeardownFailures failures;
    fake_level_zero_fail("zeMemPutIpcHandle", 1, abi::invalid_argument);
    EXPECT_FALSE(refusal(address));
    EXPECT_THAT(TeardownFailures::seen(), ElementsAre(Pair("zeMemPutIpcHandle", EIO)));
    EXPECT_EQ(fake_level_zero_ipc_handles(), 1U);
    fake_level_zero_free(address);
}

TEST_F(LevelZeroIpc, OfMemoryThatIsFreedMeanwhileIsNone) {
    for (const bool again : {false, true}) {
        const std::uint64_t address = make_undescribed(device);
        fake_level_zero_free_before(descriptor_call, address, again);
        // What is reported of the handle is that the memory took it along.
        const TeardownFailures failures;
        const auto error = refusal(address);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EFAULT);
        EXPECT_THAT(error->what(),
                    HasSubstr(again ? "belongs to another allocation now" : "not been freed"));
        fake_level_zero_free(address);
    }
}

} // namespace
} // namespace rdmabuf::testing
