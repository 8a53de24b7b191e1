// SPDX-License-Identifier: BSD-3-Clause
// The driver that is not there, too old, not initialised, or another process's; and what it
// allocates.
#include "rocm/rocm_driver.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "rocm_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using RocmAllocate = RocmTest;
using RocmAvailability = RocmTest;

TEST(RocmDriver, ThatIsAbsentIsToldWithWhatWasTried) {
    constexpr std::array names{"libhsa-of-nobody.so.1", "libhsa-of-nobody.so"};
    const auto loaded = abi::Driver::load(names);
    ASSERT_FALSE(loaded);
    EXPECT_THAT(loaded.reason(),
                AllOf(HasSubstr("the HSA runtime of ROCm cannot be loaded"),
                      HasSubstr("libhsa-of-nobody.so.1: "), HasSubstr("libhsa-of-nobody.so: ")));
    EXPECT_THAT(loaded.error_info().remedy(), HasSubstr("LD_LIBRARY_PATH"));
}

TEST(RocmDriver, ThatIsTooOldIsToldWithWhatItLacks) {
    constexpr std::array names{LACKING_DRIVER};
    const auto loaded = abi::Driver::load(names);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error(), ENOSYS);
    EXPECT_THAT(loaded.reason(),
                AllOf(HasSubstr("hsa_amd_portable_export_dmabuf (available since ROCm 5.6)"),
                      HasSubstr("hsa_amd_portable_close_dmabuf"), Not(HasSubstr("hsa_init")),
                      Not(HasSubstr("_v2"))));
    EXPECT_THAT(loaded.error_info().remedy(), HasSubstr("ROCm 5.6"));
}

TEST(RocmDriver, IsNotInitialisedByAsking) {
    fake_rocm_reset(1);
    const auto exporter = make_rocm_exporter();
    EXPECT_FALSE(exporter->find(0x1234));
    const auto error = error_of([&] { (void)exporter->export_range(0x1234, 1); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENODEV);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("HSA_STATUS_ERROR_NOT_INITIALIZED (0x100b)"),
                                     HasSubstr("HSA is not initialised in this process")));
    EXPECT_EQ(fake_rocm_calls("hsa_init"), 0U);
}

TEST(RocmDriver, IsShutDownAsOftenAsItIsInitialised) {
    fake_rocm_reset(1);
    auto exporter = make_rocm_exporter();
    for (int time = 0; time < 3; ++time) {
        EXPECT_TRUE(exporter->availability());
    }
    EXPECT_EQ(fake_rocm_references(), 1U);
    {
        const Buffer buffer = exporter->allocate(1);
        exporter.reset();
        EXPECT_EQ(fake_rocm_references(), 1U);
    }
    EXPECT_EQ(fake_rocm_references(), 0U);
    EXPECT_EQ(fake_rocm_calls("hsa_shut_down"), fake_rocm_calls("hsa_init"));
}

TEST(RocmDriver, ThatCannotBeInitialisedIsTold) {
    fake_rocm_reset(1);
    fake_rocm_fail("hsa_init", 1, abi::out_of_resources);
    const auto exporter = make_rocm_exporter();
    const Availability found = exporter->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("HSA_STATUS_ERROR_OUT_OF_RESOURCES (0x1008)"));
    EXPECT_THAT(found.remedy, AllOf(HasSubstr("/dev/kfd"), HasSubstr("rocminfo")));
    EXPECT_TRUE(exporter->availability()) << "it may work the next time";
}

/// What a child of this process sees; 0 when it is what it has to be.
int look_after_fork(const Allocator& exporter, const Buffer& buffer) {
    const unsigned calls = fake_rocm_all_calls();
    if (exporter.find(buffer.address())) {
        return 1;
    }
    const auto error = error_of([&] { (void)exporter.export_range(buffer.address(), 1); });
    if (!error || error->error() != ENODEV ||
        error->hint().find("HSA cannot be used in") == std::string::npos) {
        return 2;
    }
    for (const auto& asked : {exporter.availability(), make_rocm_exporter()->availability()}) {
        if (asked || asked.remedy.find("HSA cannot be used in") == std::string::npos) {
            return 3;
        }
    }
    return fake_rocm_all_calls() == calls ? 0 : 4;
}

TEST(RocmDriver, IsNotThereInTheChildOfAProcessThatUsesIt) {
    fake_rocm_reset(1);
    auto exporter = make_rocm_exporter();
    auto buffer = std::make_unique<Buffer>(exporter->allocate(1));
    std::optional<ExportedRange> range(exporter->export_range(buffer->address(), 1));
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        int wrong = look_after_fork(*exporter, *buffer);
        const unsigned calls = fake_rocm_all_calls();
        const TeardownFailures failures;
        const int fd = range->fd();
        range.reset();
        buffer.reset(); // the parent's, and nothing to complain of
        exporter.reset();
        if (wrong == 0 && (!TeardownFailures::seen().empty() || open_descriptors().contains(fd) ||
                           fake_rocm_all_calls() != calls)) {
            wrong = 5;
        }
        ::_exit(wrong);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_TRUE(exporter->find(buffer->address())) << "the parent's is as it was";
}

TEST(RocmDriver, WithoutAGpuIsTold) {
    fake_rocm_reset(0);
    const auto exporter = make_rocm_exporter();
    const Availability found = exporter->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("no GPU 0; number of GPUs that this process sees: 0"));
    EXPECT_THAT(found.remedy, HasSubstr("ROCR_VISIBLE_DEVICES"));
}

TEST_F(RocmAvailability, NamesTheGpusAndWhatFails) {
    EXPECT_EQ(exporter_->availability().reason,
              "libhsa-runtime64.so.1, 0000:3b:00.0, 0000:3c:00.0");
    fake_rocm_fail("hsa_iterate_agents", 1, abi::general_error);
    EXPECT_THAT(exporter_->availability().reason, HasSubstr("HSA_STATUS_ERROR (0x1000)"));
    fake_rocm_fail("hsa_system_get_info", 1, abi::invalid_argument);
    EXPECT_THAT(exporter_->availability().reason,
                AllOf(HasSubstr("does not export dma-bufs"), HasSubstr("INVALID_ARGUMENT")));
}

// Allocating

TEST_F(RocmAllocate, TakesTheDeviceThatWasChosen) {
    const auto exporter = make_rocm_exporter({.device = 1});
    {
        const Buffer buffer = exporter->allocate(1);
        EXPECT_EQ(exporter_->find(buffer.address())->pci_address, "0000:3c:00.0");
        EXPECT_EQ(fake_rocm_live(), 1U);
    }
    EXPECT_EQ(fake_rocm_live(), 0U);
}

TEST_F(RocmAllocate, TellsWhichDevicesThereAre) {
    for (const int device : {2, -1}) {
        const auto exporter = make_rocm_exporter({.device = device});
        const auto error = error_of([&] { (void)exporter->allocate(1); });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), ENODEV);
        EXPECT_THAT(error->what(), HasSubstr("no GPU " + std::to_string(device) +
                                             "; number of GPUs that this process sees: 2"));
        EXPECT_FALSE(exporter->availability());
    }
}

TEST_F(RocmAllocate, NeedsMemoryOfTheGpusOwn) {
    fake_rocm_set_fine_only(true);
    const auto error = error_of([&] { (void)exporter_->allocate(1); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENODEV);
    EXPECT_THAT(error->what(), HasSubstr("0000:3b:00.0 has no coarse-grained pool"));
}

TEST_F(RocmAllocate, GivesBackWhatItHadWhicheverCallFails) {
    for (const char* const function : {"hsa_iterate_agents", "hsa_amd_agent_iterate_memory_pools",
                                       "hsa_amd_memory_pool_allocate"}) {
        fake_rocm_fail(function, 1, abi::out_of_resources);
        const auto error = error_of([&] { (void)exporter_->allocate(1); });
        ASSERT_TRUE(error) << function;
        EXPECT_EQ(error->error(), ENOMEM);
        EXPECT_THAT(error->what(), HasSubstr("HSA_STATUS_ERROR_OUT_OF_RESOURCES (0x1008)"));
        EXPECT_EQ(fake_rocm_live(), 0U) << function;
    }
}

TEST_F(RocmAllocate, TellsOfCopiesThatFail) {
    const Buffer buffer = exporter_->allocate(100);
    std::vector<std::byte> bytes(8);
    for (const unsigned nth : {1U, 2U}) {
        fake_rocm_fail("hsa_memory_copy", nth, abi::general_error);
        const auto error = error_of([&] {
            buffer.copy_in(0, bytes);
            buffer.copy_out(0, bytes);
        });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EIO);
        EXPECT_THAT(error->what(),
                    AllOf(HasSubstr("(0x1000)"),
                          HasSubstr(nth == 1 ? "copied to the device" : "copied from the device")));
    }
}

TEST_F(RocmAllocate, SaysNothingOfADriverThatHasGoneFirst) {
    const TeardownFailures failures;
    {
        const Buffer buffer = exporter_->allocate(1);
        fake_rocm_fail("hsa_amd_memory_pool_free", 1, abi::not_initialized);
    }
    EXPECT_THAT(TeardownFailures::seen(), ::testing::IsEmpty());
    {
        const Buffer buffer = exporter_->allocate(1);
        fake_rocm_fail("hsa_amd_memory_pool_free", 1, abi::general_error);
    }
    EXPECT_THAT(TeardownFailures::seen(),
                ::testing::ElementsAre(TeardownFailures::Failure("hsa_amd_memory_pool_free", EIO)));
}

} // namespace
} // namespace rdmabuf::testing
