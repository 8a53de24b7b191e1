// SPDX-License-Identifier: BSD-3-Clause
// Tests that the exporter of every vendor's driver passes.
#include <algorithm>
#include <array>
#include <utility>

#include <rdmabuf/resolver.hpp>

#include "driver_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using DriverLibraryFiles = DriverTest;
using DriverAvailability = DriverTest;
using DriverExports = DriverTest;
using DriverBuffers = DriverTest;

TEST_F(DriverLibraryFiles, ThatAreAbsentAreReportedWithTheNamesThatWereTried) {
    constexpr std::array names{"libnobody.so.1", "/nowhere/libnobody.so"};
    for (const LibraryRow& library : driver_row().libraries) {
        const auto error = library.load(names);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), ENOENT);
        EXPECT_THAT(error->reason(),
                    AllOf(HasSubstr(library.absent + " cannot be loaded: libnobody.so.1: "),
                          HasSubstr("; /nowhere/libnobody.so: ")));
        EXPECT_THAT(error->remedy(), HasSubstr(library.install));
    }
}

TEST_F(DriverLibraryFiles, ThatAreTooOldAreReportedWithTheFunctionsThatTheyLack) {
    for (const LibraryRow& library : driver_row().libraries) {
        const std::array names{library.old};
        const auto error = library.load(names);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), ENOSYS);
        EXPECT_STREQ(error->function(), "dlsym");
        for (const std::string& function : library.lacks) {
            EXPECT_THAT(error->reason(), HasSubstr(function));
        }
        for (const std::string& function : library.has) {
            EXPECT_THAT(error->reason(), Not(HasSubstr(function)));
        }
        EXPECT_THAT(error->remedy(), HasSubstr(library.update));
    }
}

TEST_F(DriverAvailability, WithoutADeviceIsDenied) {
    allocator_.reset();
    exporter_.reset();
    fake::reset(0);
    auto exporter = driver_row().make(0);
    const Availability found = exporter->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr(driver_row().no_device));
    EXPECT_THAT(found.remedy, HasSubstr(driver_row().no_device_remedy));
    EXPECT_THAT(error_of([&] { (void)exporter->allocate(1); }), fails_with(ENODEV));
    exporter.reset();
    fake::reset(2);
    if (driver_row().begin) {
        driver_row().begin(*driver_row().make(0));
    }
}

TEST_F(DriverAvailability, NamesTheLibraryAndTheDevices) {
    EXPECT_EQ(allocator_->availability().reason, driver_row().available);
}

TEST_F(DriverAvailability, ComesBeforeTheExportersOfSystemMemory) {
    const Resolver resolver = Resolver::system();
    std::vector<std::string> names;
    for (const auto& exporter : resolver.exporters()) {
        names.emplace_back(exporter->name());
    }
    const auto place = [&](const char* name) { return std::ranges::find(names, name); };
    ASSERT_NE(place(driver_row().name.c_str()), names.end());
    for (const char* const system : {"drm", "dma_heap", "udmabuf"}) {
        EXPECT_LT(place(driver_row().name.c_str()), place(system));
    }
    if (dynamic_cast<const Allocator*>(resolver.exporter(driver_row().name).get()) == nullptr) {
        return;
    }
    const Buffer buffer = resolver.allocator(driver_row().name)->allocate(1);
    EXPECT_EQ(resolver.find(buffer.address()).exporter->name(), driver_row().name);
}

// Exports of memory that the program has allocated

TEST_F(DriverExports, ReportTheResultOfTheDriverAndLeaveNothing) {
    for (const DriverFailure& failure : driver_row().export_failures) {
        const std::uint64_t address = make();
        const auto before = open_descriptors();
        fake::fail(failure.function, failure.result);
        EXPECT_THAT(refusal(address, page_size()), is_error_of(failure)) << failure.function;
        EXPECT_EQ(open_descriptors(), before) << failure.function;
        EXPECT_FALSE(refusal(address)) << failure.function;
    }
}

TEST_F(DriverExports, ThatAreTooShortAreRefused) {
    const std::uint64_t address = make(fake::Kind::device, 2 * page_size());
    const auto before = open_descriptors();
    fake::set(fake::Setting::shortfall, static_cast<std::int64_t>(page_size()));
    for (int time = 0; time < 2; ++time) {
        EXPECT_THAT(refusal(address, 2 * page_size()),
                    fails_with(ERANGE, "has " + std::to_string(page_size()) + " bytes"));
        // The fake keeps a descriptor for each range that it has exported.
        EXPECT_LE(open_descriptors().size(), before.size() + 1);
    }
}

TEST_F(DriverExports, HaveADescriptorThatIsClosedOnExec) {
    const std::uint64_t address = make();
    fake::set(fake::Setting::inheritable, 1);
    {
        const auto added = add(address, page_size());
        EXPECT_TRUE(closed_on_exec(exporter_->export_range(address, 1).fd()));
    }
    fake::set(fake::Setting::no_descriptor, 1);
    const auto& [function, result, error, text] = driver_row().no_descriptor;
    EXPECT_THAT(refusal(make()), fails_with(error, text));
}

TEST_F(DriverExports, ContainTheBytesOfAllocationsThatShareABlock) {
    const std::size_t size = 3 * page_size();
    fake::set(fake::Setting::packed, driver_row().packs ? 1 : 0);
    const std::uint64_t first = make(fake::Kind::device, 1000);
    const std::uint64_t second = make(fake::Kind::device, size);
    put(first, 1000, 1);
    const auto expected = put(second, size, 2);
    const auto added = add(second, size);
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, page_size() + 13}) {
        for (const std::size_t length : {std::size_t{1}, page_size() + 1, size - offset}) {
            const ExportedRange range = exporter_->export_range(second + offset, length);
            EXPECT_EQ(range.offset() % page_size(), (second + offset) % page_size());
            EXPECT_EQ(range.length(), length);
            EXPECT_EQ(range.address(), second + offset);
            EXPECT_EQ(bytes_of(range), part(expected, offset, length));
        }
    }
    EXPECT_EQ(exporter_->find(second + 1)->base, second);
    EXPECT_EQ(exporter_->find(second + 1)->length, size);
    // The block is longer than the allocation.
    EXPECT_THAT(error_of([&] { (void)exporter_->export_range(second + 1, size); }),
                fails_with(ERANGE));
}

// Memory of allocate()

TEST_F(DriverBuffers, ReportTheResultOfTheDriverAndLeaveNothing) {
    EXPECT_FALSE(refusal_to_allocate()); // an exporter keeps its reference to the driver
    const auto before = open_descriptors();
    const unsigned references = fake::references();
    for (const DriverFailure& failure : driver_row().allocate_failures) {
        fake::fail(failure.function, failure.result);
        EXPECT_THAT(refusal_to_allocate(), is_error_of(failure)) << failure.function;
        EXPECT_EQ(fake::live(), 0U) << failure.function;
        EXPECT_EQ(fake::references(), references) << failure.function;
        EXPECT_EQ(fake::primary_references(0), 0U) << failure.function;
        EXPECT_EQ(open_descriptors(), before) << failure.function;
    }
    EXPECT_FALSE(refusal_to_allocate());
    EXPECT_EQ(fake::live(), 0U);
}

TEST_F(DriverBuffers, ReportACopyThatFailsAndLeaveNothing) {
    const Buffer buffer = allocator_->allocate(page_size());
    const unsigned live = fake::live();
    std::vector<std::byte> bytes(7);
    const auto copy = [&](bool in) { in ? buffer.copy_in(1, bytes) : buffer.copy_out(1, bytes); };
    for (const DriverFailure& failure : driver_row().copy_failures) {
        // Some functions copy in both directions.
        for (const bool in_first : {false, true}) {
            fake::fail(failure.function, failure.result);
            EXPECT_THAT(error_of([&] {
                            copy(in_first);
                            copy(!in_first);
                        }),
                        is_error_of(failure))
                << failure.function;
            EXPECT_EQ(fake::live(), live) << failure.function;
        }
    }
}

TEST_F(DriverBuffers, ThatCannotBeFreedAreReportedUnlessTheDriverIsShutDown) {
    for (const bool silent : {false, true}) {
        for (const auto& [function, result, error, reported] :
             silent ? driver_row().silent_free_failures : driver_row().free_failures) {
            const TeardownFailures failures;
            std::optional<Buffer> buffer(allocator_->allocate(1));
            fake::fail(function, result);
            buffer.reset();
            if (silent) {
                EXPECT_THAT(TeardownFailures::seen(), IsEmpty()) << function;
            } else {
                EXPECT_THAT(TeardownFailures::seen(),
                            ElementsAre(TeardownFailures::Failure(reported, error)));
            }
        }
    }
}

TEST_F(DriverBuffers, LiveAsLongAsTheirExports) {
    auto buffer = std::make_unique<Buffer>(allocator_->allocate(page_size()));
    auto range =
        std::make_unique<ExportedRange>(allocator_->export_range(buffer->address(), page_size()));
    const auto expected = put(buffer->address(), page_size(), 1);
    buffer.reset();
    EXPECT_EQ(bytes_of(*range), expected);
    range.reset();
    EXPECT_EQ(fake::live(), 0U);
}

} // namespace
} // namespace rdmabuf::testing
