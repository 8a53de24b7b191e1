// SPDX-License-Identifier: BSD-3-Clause
#include "standin_fixture.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <system_error>

namespace rdmabuf::testing {

using ::testing::IsEmpty;

StandinTest::StandinTest() : descriptors_(open_descriptors()), teardown_failures_(std::in_place) {
    standin::reset({standin::roce_device()});
}

// Here rather than in TearDown(): the members of the test are gone by now.
StandinTest::~StandinTest() {
    EXPECT_EQ(standin::live(), 0U) << "objects were leaked";
    EXPECT_EQ(open_descriptors(), descriptors_) << "descriptors were leaked";
    EXPECT_THAT(standin::violations(), IsEmpty());
    EXPECT_EQ(standin::unacknowledged_events(), 0);
    EXPECT_THAT(take_teardown_failures(), IsEmpty());
    EXPECT_TRUE(standin::all_failed()) << "a planned failure did not happen";
    standin::reset({});
}

std::vector<TeardownFailures::Failure> StandinTest::take_teardown_failures() {
    auto failures = TeardownFailures::seen();
    teardown_failures_.reset();
    teardown_failures_.emplace();
    return failures;
}

UniqueFd make_dmabuf(std::size_t size) {
    UniqueFd fd(::memfd_create("stand-in dma-buf", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
        throw std::system_error(errno, std::system_category(), "memfd_create or ftruncate");
    }
    return fd;
}

} // namespace rdmabuf::testing
