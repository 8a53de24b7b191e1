// SPDX-License-Identifier: BSD-3-Clause
#include "memory.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using rdmabuf::tools::AllocatedMemory;
using rdmabuf::tools::UsageError;

TEST(AllocatedMemory, SaysThatItsExporterIsMissingFromTheBuild) {
    try {
        const AllocatedMemory memory({.type = "missing"}, 4096);
        FAIL() << "allocated";
    } catch (const UsageError& error) {
        EXPECT_STREQ(error.what(),
                     "this rdmabuf was built without the missing exporter: use another --memory");
    }
}

} // namespace
