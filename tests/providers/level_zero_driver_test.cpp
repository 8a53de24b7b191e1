// SPDX-License-Identifier: BSD-3-Clause
// The loader that is not there or too old, the driver that refuses, and the memory of its GPUs.
#include "level_zero/level_zero_driver.hpp"

#include <array>
#include <cerrno>

#include "level_zero_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

TEST(LevelZeroLoader, ThatIsAbsentIsToldWithWhatWasTried) {
    constexpr std::array names{"libze-of-nobody.so.1", "libze-of-nobody.so"};
    const auto loaded = abi::Driver::load(names);
    ASSERT_FALSE(loaded);
    EXPECT_THAT(loaded.reason(),
                AllOf(HasSubstr("the Level Zero loader cannot be loaded"),
                      HasSubstr("libze-of-nobody.so.1: "), HasSubstr("libze-of-nobody.so: ")));
    EXPECT_THAT(loaded.error_info().remedy(), HasSubstr("libze1"));
}

TEST(LevelZeroLoader, ThatIsTooOldIsToldWithWhatItLacks) {
    constexpr std::array names{LACKING_LOADER};
    const auto loaded = abi::Driver::load(names);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error(), ENOSYS);
    EXPECT_THAT(loaded.reason(),
                AllOf(HasSubstr("zeMemGetAddressRange (available since Level Zero 1.0)"),
                      HasSubstr("zeCommandListAppendMemoryCopy"), Not(HasSubstr("zeInit")),
                      Not(HasSubstr("zeMemPutIpcHandle"))));
}

TEST(LevelZeroLoader, IsNotInitialisedByAsking) {
    fake_level_zero_reset(1);
    const auto exporter = make_level_zero_exporter();
    EXPECT_FALSE(exporter->find(0x1234));
    EXPECT_EQ(fake_level_zero_calls("zeInit"), 0U);
    EXPECT_EQ(fake_level_zero_calls("zeContextCreate"), 0U);
}

TEST(LevelZeroLoader, ThatFindsNoDriverIsTold) {
    fake_level_zero_reset(1);
    const auto exporter = make_level_zero_exporter();
    EXPECT_TRUE(exporter->availability());
    fake_level_zero_fail("zeInit", 1, abi::uninitialized);
    const Availability found = exporter->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, AllOf(HasSubstr("libze_loader.so.1"),
                                    HasSubstr("ZE_RESULT_ERROR_UNINITIALIZED (0x78000001)")));
    EXPECT_THAT(found.remedy, HasSubstr("/dev/dri/renderD*"));
    fake_level_zero_fail("zeInit", 1, 0x70123456);
    const auto error = error_of([&] { (void)exporter->allocate(1); });
    ASSERT_TRUE(error);
    EXPECT_STREQ(error->function(), "zeInit");
    EXPECT_THAT(error->what(), HasSubstr("unknown result (0x70123456)"));
}

using LevelZeroDevices = LevelZeroTest;

TEST_F(LevelZeroDevices, AreNamedAsFarAsTheyExport) {
    EXPECT_EQ(exporter_->availability().reason,
              "libze_loader.so.1 for Level Zero 1.3, 0001:3a:1f.1, 0001:3b:1f.1");
    fake_level_zero_set_export_types(0, 1);
    EXPECT_EQ(exporter_->availability().reason,
              "libze_loader.so.1 for Level Zero 1.3, 0001:3b:1f.1");
    fake_level_zero_set_export_types(1, 0);
    const Availability none = exporter_->availability();
    EXPECT_FALSE(none);
    EXPECT_THAT(none.reason, HasSubstr("does not export its memory as dma-bufs"));
}

TEST_F(LevelZeroDevices, AreGpusAndNothingElse) {
    fake_level_zero_set_device_type(0, 5);
    EXPECT_EQ(exporter_->availability().reason,
              "libze_loader.so.1 for Level Zero 1.3, 0001:3b:1f.1");
    fake_level_zero_set_device_type(1, 5);
    const Availability none = exporter_->availability();
    EXPECT_FALSE(none);
    EXPECT_THAT(none.reason,
                HasSubstr("there is no GPU 0; number of GPUs that this process sees: 0"));
    EXPECT_THAT(none.remedy, HasSubstr("ZE_AFFINITY_MASK"));
}

TEST_F(LevelZeroDevices, AreChosenByTheirOrdinal) {
    const Buffer buffer = make_level_zero_exporter({.device = 1})->allocate(1);
    EXPECT_EQ(exporter_->find(buffer.address())->pci_address, "0001:3b:1f.1");
    for (const int device : {-1, 2}) {
        const auto error =
            error_of([&] { (void)make_level_zero_exporter({.device = device})->allocate(1); });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), ENODEV);
        EXPECT_THAT(error->what(), HasSubstr("there is no GPU " + std::to_string(device) +
                                             "; number of GPUs that this process sees: 2"));
    }
}

TEST_F(LevelZeroDevices, ShareOneContextOfTheLibrarys) {
    const Buffer first = exporter_->allocate(1);
    const unsigned made = fake_level_zero_contexts();
    const auto other = make_level_zero_exporter({.device = 1});
    const Buffer second = other->allocate(1);
    EXPECT_TRUE(other->find(first.address()));
    EXPECT_TRUE(exporter_->find(second.address()));
    EXPECT_EQ(fake_level_zero_contexts(), made);
}

using LevelZeroBuffers = LevelZeroTest;

TEST_F(LevelZeroBuffers, TellWhyTheyCannotBeMade) {
    fake_level_zero_fail("zeMemAllocDevice", 1, abi::out_of_device_memory);
    const auto error = error_of([&] { (void)exporter_->allocate(page_size()); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOMEM);
    EXPECT_STREQ(error->function(), "zeMemAllocDevice");
    EXPECT_THAT(error->what(), HasSubstr("ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY (0x70000003)"));
}

TEST_F(LevelZeroBuffers, TellWhyTheyCannotBeCopiedAndLeaveNothingBehind) {
    const Buffer buffer = exporter_->allocate(page_size());
    std::array<std::byte, 8> bytes{};
    for (const char* const function :
         {"zeDeviceGetCommandQueueGroupProperties", "zeCommandListCreateImmediate",
          "zeCommandListAppendMemoryCopy"}) {
        for (const bool in : {false, true}) {
            fake_level_zero_fail(function, 1, abi::device_lost);
            const auto error =
                error_of([&] { in ? buffer.copy_in(0, bytes) : buffer.copy_out(0, bytes); });
            ASSERT_TRUE(error) << function;
            EXPECT_EQ(error->error(), ENODEV);
            EXPECT_STREQ(error->function(), function);
            EXPECT_EQ(fake_level_zero_live(), 1U) << "the buffer";
        }
    }
}

TEST_F(LevelZeroBuffers, ThatCannotBeGivenBackAreReported) {
    const TeardownFailures failures;
    std::optional<Buffer> buffer(exporter_->allocate(1));
    fake_level_zero_fail("zeMemFree", 1, abi::device_lost);
    buffer.reset();
    EXPECT_THAT(TeardownFailures::seen(), ElementsAre(Pair("zeMemFree", ENODEV)));
    // But not of a loader that has gone before, at the end of the process.
    buffer.emplace(exporter_->allocate(1));
    fake_level_zero_fail("zeMemFree", 1, abi::uninitialized);
    buffer.reset();
    EXPECT_EQ(TeardownFailures::seen().size(), 1U);
}

} // namespace
} // namespace rdmabuf::testing
