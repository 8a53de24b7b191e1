// SPDX-License-Identifier: BSD-3-Clause
// Tests of exporters whose driver cannot be used in the child of a process that uses it.
#include <unistd.h>

#include "child_process.hpp"
#include "driver_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::HasSubstr;
using DriverFork = DriverTest;

TEST_F(DriverFork, AChildFindsNothingAndFreesItsObjectsWithoutTheDriver) {
    std::optional<Buffer> buffer(allocator_->allocate(1));
    std::optional<ExportedRange> range(allocator_->export_range(buffer->address(), 1));
    const std::string& text = driver_row().fork_text;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const unsigned calls = fake::all_calls();
        EXPECT_FALSE(allocator_->find(buffer->address()));
        EXPECT_THAT(refusal(buffer->address()), fails_with(ENODEV, text));
        for (const auto& found :
             {allocator_->availability(), driver_row().make(0)->availability()}) {
            EXPECT_FALSE(found);
            EXPECT_THAT(found.remedy, HasSubstr(text));
        }
        const TeardownFailures failures;
        const int fd = range->fd();
        range.reset();
        buffer.reset(); // the memory belongs to the parent
        allocator_.reset();
        exporter_.reset();
        EXPECT_THAT(TeardownFailures::seen(), ::testing::IsEmpty());
        EXPECT_FALSE(open_descriptors().contains(fd));
        EXPECT_TRUE(driver_row().child_calls_driver || fake::all_calls() == calls);
        ::_exit(HasFailure() ? 1 : 0);
    }
    expect_success(child);
    EXPECT_TRUE(allocator_->find(buffer->address())) << "the parent's memory is unchanged";
}

} // namespace
} // namespace rdmabuf::testing
