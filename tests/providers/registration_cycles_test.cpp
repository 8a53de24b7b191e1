// SPDX-License-Identifier: BSD-3-Clause
// Memory of a fake driver registered over and over, on softverbs.
#include <gtest/gtest.h>

#include <rdmabuf/registration.hpp>

#include "loopback.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

TEST(RegistrationCycles, LeaveNoDescriptors) {
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    for (const std::string& kind : memory_kinds()) {
        const Resolver resolver = Resolver::system();
        const Buffer buffer = resolver.allocator(kind)->allocate(2 * page_size());
        const auto once = [&] {
            Registration region =
                register_memory(pd, resolver, buffer.address() + 5, page_size(),
                                {.paths = {RegistrationPath::dmabuf}, .access = full_access});
            ASSERT_EQ(region.exporter(), kind);
            region.close();
        };
        once(); // what a driver opens at the first one stays open
        const auto before = open_descriptors();
        for (int cycle = 0; cycle < 10'000; ++cycle) {
            ASSERT_NO_FATAL_FAILURE(once());
        }
        EXPECT_EQ(open_descriptors(), before) << kind;
    }
}

} // namespace
} // namespace rdmabuf::testing
