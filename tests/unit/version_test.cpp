// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <gtest/gtest.h>

#include <rdmabuf/version.hpp>

namespace {

TEST(Version, OfTheLibraryIsThatOfTheHeaders) {
    const std::string of_the_headers = std::to_string(RDMABUF_VERSION_MAJOR) + "." +
                                       std::to_string(RDMABUF_VERSION_MINOR) + "." +
                                       std::to_string(RDMABUF_VERSION_PATCH);
    EXPECT_EQ(rdmabuf::version(), of_the_headers);
}

} // namespace
