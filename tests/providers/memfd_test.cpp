// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include <gmock/gmock.h>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/resolver.hpp>

#include "exporter_suite.hpp"
#include "fails_with.hpp"
#include "fake_kernel.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::HasSubstr;

const Subject subject{.name = "memfd",
                      .make = [] { return make_memfd_exporter(); },
                      .machine = [] { return std::make_shared<FakeKernel>(); },
                      .works_with = "only devices of softverbs accept",
                      .makes_dmabufs = false};

INSTANTIATE_TEST_SUITE_P(Memfd, ExporterSuite, ::testing::Values(subject));
INSTANTIATE_TEST_SUITE_P(Memfd, ExporterFaults, ::testing::Values(subject));

TEST(Memfd, KeepsItsSizeWhateverAHolderOfItsDescriptorDoes) {
    const auto exporter = make_memfd_exporter();
    const Buffer buffer = exporter->allocate(2 * page_size());
    const ExportedRange range = exporter->export_range(buffer.address(), buffer.size());
    for (const std::size_t size : {page_size(), 3 * page_size()}) {
        EXPECT_EQ(::ftruncate(range.fd(), static_cast<off_t>(size)), -1);
        EXPECT_EQ(errno, EPERM);
    }
    EXPECT_EQ(::fcntl(range.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
    EXPECT_EQ(errno, EPERM);
}

TEST(Memfd, TellsWhyNoneCanBeMade) {
    FakeKernel kernel;
    kernel.fail_call(1, EPERM); // as in a sandbox
    const Availability found = make_memfd_exporter()->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("a memfd cannot be created"));
    EXPECT_THAT(found.reason, HasSubstr("(EPERM)"));
}

TEST(Memfd, WorksOnKernelsThatDoNotKnowNoexecSeals) {
    FakeKernel kernel;
    kernel.forget_noexec_seal();
    EXPECT_TRUE(make_memfd_exporter()->availability());
    EXPECT_EQ(make_memfd_exporter()->allocate(1).size(), page_size());
}

TEST(Memfd, IsNoneOfTheSystemsExporters) {
    const Resolver resolver = Resolver::system();
    EXPECT_THAT(error_of([&] { (void)resolver.exporter("memfd"); }), fails_with(ENOENT));
}

} // namespace
} // namespace rdmabuf::testing
