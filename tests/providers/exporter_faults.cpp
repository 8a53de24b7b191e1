// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>

#include "exporter_suite.hpp"
#include "fake_kernel.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

/// What a test must find as it was.
struct Held {
    std::set<int> descriptors = open_descriptors();
    std::size_t mappings = FakeKernel::current()->live_mappings();
    std::size_t dumb_buffers = FakeKernel::current()->live_dumb_buffers();
    std::size_t masters = FakeKernel::current()->masters();
    std::size_t inheritable = FakeKernel::current()->inheritable();

    friend bool operator==(const Held&, const Held&) = default;
};

std::ostream& operator<<(std::ostream& out, const Held& held) {
    return out << held.descriptors.size() << " descriptors, " << held.mappings << " mappings, "
               << held.dumb_buffers << " dumb buffers, " << held.masters << " masters, "
               << held.inheritable << " inheritable";
}

/// Calls that may fail without consequence: without sysfs less is known, and only a master can stop
/// being one.
bool harmless(const std::string& call) {
    constexpr std::array calls = {"readlink", "fstat", "ioctl(DRM_IOCTL_DROP_MASTER)"};
    return std::find(calls.begin(), calls.end(), call) != calls.end();
}

// ENOSPC: an errno that no code here treats in its own way.
constexpr int injected = ENOSPC;

TEST_P(ExporterFaults, LeakNothingAndAreTold) {
    FakeKernel& kernel = *FakeKernel::current();
    const Held before;
    std::vector<std::string> failed;
    for (unsigned nth = 1;; ++nth) {
        ASSERT_LT(nth, 100U) << "the calls never end";
        const TeardownFailures teardown;
        kernel.fail_call(nth, injected);
        const auto error = error_of([&] {
            const Buffer buffer = exporter().allocate(page_size());
            const ExportedRange range = exporter().export_range(buffer.address(), 1);
            const CpuAccess access = buffer.cpu_access();
        });
        const auto call = kernel.failed_call();
        EXPECT_EQ(Held(), before) << "after call " << nth << ", " << call.value_or("none");
        if (!call) {
            EXPECT_FALSE(error) << error->what();
            break;
        }
        failed.push_back(*call);
        if (error) {
            EXPECT_EQ(error->error(), injected) << error->what();
            EXPECT_EQ(error->function(), *call);
        } else if (!TeardownFailures::seen().empty()) {
            EXPECT_THAT(TeardownFailures::seen(),
                        ::testing::ElementsAre(TeardownFailures::Failure(*call, injected)));
        } else {
            // Reading the size limit is an open, too; the others are not optional.
            EXPECT_TRUE(harmless(*call) || *call == "open") << *call << " failed unnoticed";
        }
    }
    // The calls that make a buffer, whoever makes it, did fail: the loop is not empty.
    const bool dmabufs = GetParam().makes_dmabufs;
    EXPECT_THAT(failed,
                ::testing::IsSupersetOf({dmabufs ? "open" : "memfd_create", "mmap", "fcntl"}));
    EXPECT_EQ(std::count(failed.begin(), failed.end(), "mmap"), 1);
    EXPECT_EQ(std::count(failed.begin(), failed.end(), "ioctl(DMA_BUF_IOCTL_SYNC)"),
              dmabufs ? 2 : 0);
}

TEST_P(ExporterFaults, AreWhatAvailabilityTells) {
    FakeKernel& kernel = *FakeKernel::current();
    const Held before;
    unsigned refused = 0;
    for (unsigned nth = 1;; ++nth) {
        ASSERT_LT(nth, 100U) << "the calls never end";
        kernel.fail_call(nth, injected);
        const Availability found = exporter().availability();
        EXPECT_EQ(Held(), before);
        if (!kernel.failed_call()) {
            break;
        }
        EXPECT_NE(found.reason, "");
        refused += found ? 0 : 1;
        if (!found) {
            EXPECT_THAT(found.reason, ::testing::HasSubstr("(ENOSPC)"));
        }
    }
    EXPECT_GE(refused, 1U);
}

TEST_P(ExporterFaults, ThatPassAreTriedAgain) {
    FakeKernel& kernel = *FakeKernel::current();
    for (const int transient : {EINTR, EAGAIN}) {
        unsigned interrupted = 0;
        for (unsigned nth = 1;; ++nth) {
            kernel.fail_call(nth, transient);
            const auto error = error_of([&] {
                const Buffer buffer = exporter().allocate(page_size());
                const CpuAccess access = buffer.cpu_access();
            });
            const auto call = kernel.failed_call();
            if (!call) {
                break;
            }
            if (call->rfind("ioctl", 0) == 0) {
                EXPECT_FALSE(error) << error->what();
                ++interrupted;
            }
        }
        EXPECT_GE(interrupted, GetParam().makes_dmabufs ? 3U : 0U);
    }
}

} // namespace
} // namespace rdmabuf::testing
