// SPDX-License-Identifier: BSD-3-Clause
// Memory of libSynapse.so, and the device that it is of.
#include <cerrno>

#include <rdmabuf/resolver.hpp>

#include "habana_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HabanaAllocating : public HabanaTest {
  protected:
    std::optional<Error> refusal_to_allocate() const {
        return error_of([&] { (void)exporter_->allocate(1); });
    }
    std::shared_ptr<HabanaExporter> exporter_ = make_habana_exporter();
};

TEST_F(HabanaAllocating, AcquiresADeviceForAsLongAsThereAreBuffers) {
    EXPECT_TRUE(exporter_->availability());
    EXPECT_FALSE(fake_habana_acquired()) << "asking takes no device";
    {
        const Buffer first = exporter_->allocate(1);
        const Buffer second = make_habana_exporter()->allocate(1);
        EXPECT_EQ(fake_habana_calls("synDeviceAcquire"), 1U);
        EXPECT_EQ(exporter_->find(first.address())->pci_address, "0000:33:00.0");
    }
    EXPECT_FALSE(fake_habana_acquired());
    const Buffer again = exporter_->allocate(1);
    EXPECT_EQ(fake_habana_calls("synDeviceAcquire"), 2U);
}

TEST_F(HabanaAllocating, KeepsTheDeviceForWhatIsExported) {
    auto buffer = std::make_unique<Buffer>(exporter_->allocate(page_size()));
    auto range =
        std::make_unique<ExportedRange>(exporter_->export_range(buffer->address(), page_size()));
    buffer.reset();
    EXPECT_TRUE(fake_habana_acquired());
    EXPECT_EQ(fake_habana_live(), 1U);
    range.reset();
    EXPECT_FALSE(fake_habana_acquired());
}

TEST_F(HabanaAllocating, NeverExportsLessOfTheMappingThanBefore) {
    auto first = std::make_unique<Buffer>(exporter_->allocate(page_size()));
    const Buffer second = exporter_->allocate(4 * page_size());
    EXPECT_EQ(fake_habana_exported(), 5 * page_size());
    // At the first one's place, and older kernels have one size for both exports.
    first.reset();
    const Buffer third = exporter_->allocate(page_size());
    ASSERT_LT(third.address(), second.address());
    EXPECT_EQ(fake_habana_exported(), 5 * page_size());
}

TEST_F(HabanaAllocating, IsThereBeforeTheExportersOfSystemMemory) {
    const Resolver resolver = Resolver::system();
    const Buffer buffer = resolver.allocator("habana")->allocate(1);
    EXPECT_EQ(resolver.find(buffer.address()).exporter->name(), "habana");
}

TEST_F(HabanaAllocating, LeavesAProgramsOwnDeviceToTheProgram) {
    const auto exporter = of_device(abi::DeviceName::gaudi2);
    const auto error = error_of([&] { (void)exporter->allocate(1); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOTSUP);
    EXPECT_THAT(error->what(), HasSubstr("add() it"));
    EXPECT_EQ(fake_habana_calls("synDeviceAcquire"), 0U);
}

TEST_F(HabanaAllocating, TellsTheLibrarysOwnNameOfWhatFails) {
    struct Case {
        const char* function;
        int status;
        int error;
        const char* text;
    };
    for (const auto& [function, status, expected, text] : std::initializer_list<Case>{
             {"synInitialize", abi::failed, EIO, "synFail (26)"},
             {"synDeviceAcquire", abi::no_device_found, ENODEV, "hl-smi"},
             {"synDeviceAcquire", abi::device_already_acquired, EBUSY, "HabanaOptions::fd"},
             {"synDeviceGetInfoV2", abi::unsupported, EOPNOTSUPP, "synUnsupported (18)"},
             {"synStreamCreateGeneric", abi::device_reset, EIO, "being reset"},
             {"synDeviceMalloc", abi::out_of_device_memory, ENOMEM, "synOutOfDeviceMemory (4)"},
             {"synDeviceMalloc", 99, EIO, "unknown result (99)"},
         }) {
        fake_habana_fail(function, 1, status);
        const auto error = refusal_to_allocate();
        ASSERT_TRUE(error) << function;
        EXPECT_EQ(error->error(), expected) << error->what();
        EXPECT_STREQ(error->function(), function);
        EXPECT_THAT(error->what(), HasSubstr(text));
        EXPECT_FALSE(fake_habana_acquired()) << "after " << function;
    }
    fake_habana_fail(mapping_call, 1, -ENOMEM);
    EXPECT_EQ(refusal_to_allocate()->error(), ENOMEM);
    EXPECT_FALSE(fake_habana_acquired());
}

TEST_F(HabanaAllocating, TakesALibraryThatTheProgramInitialised) {
    for (const int status : {abi::already_initialized, abi::object_already_initialized}) {
        { const Buffer first = exporter_->allocate(1); }
        fake_habana_fail("synInitialize", 1, status);
        EXPECT_FALSE(refusal_to_allocate());
    }
}

TEST_F(HabanaAllocating, TellsWhichCopyFailedAndGivesTheHostMemoryBack) {
    const Buffer buffer = exporter_->allocate(page_size());
    std::vector<std::byte> bytes(7);
    for (const char* const function :
         {"synHostMalloc", "synMemCopyAsync", "synStreamSynchronize"}) {
        fake_habana_fail(function, 1, abi::busy);
        auto error = error_of([&] { buffer.copy_in(1, bytes); });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EBUSY);
        EXPECT_STREQ(error->function(), function);
        EXPECT_THAT(error->what(), AllOf(HasSubstr("synBusy (22)"), HasSubstr("7 bytes")));
        fake_habana_fail(function, 1, abi::busy);
        EXPECT_TRUE(error_of([&] { buffer.copy_out(1, bytes); }));
        EXPECT_EQ(fake_habana_live(), 1U);
    }
}

TEST_F(HabanaAllocating, ReportsATeardownThatFails) {
    const TeardownFailures failures;
    {
        const Buffer buffer = exporter_->allocate(1);
        fake_habana_fail("synDeviceFree", 1, abi::device_reset);
    }
    EXPECT_EQ(TeardownFailures::seen().at(0), TeardownFailures::Failure("synDeviceFree", EIO));
    fake_habana_reset(1);
}

} // namespace
} // namespace rdmabuf::testing
