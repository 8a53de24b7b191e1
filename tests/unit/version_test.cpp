// SPDX-License-Identifier: BSD-3-Clause
#include "rdmabuf/version.hpp"

#include <string>

#include <gtest/gtest.h>

namespace {

TEST(Version, OfTheLibraryIsThatOfTheHeaders) {
    const std::string of_the_headers = std::to_string(RDMABUF_VERSION_MAJOR) + "." +
                                       std::to_string(RDMABUF_VERSION_MINOR) + "." +
                                       std::to_string(RDMABUF_VERSION_PATCH);
    EXPECT_EQ(rdmabuf::version(), of_the_headers);
}

} // namespace
