// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ostream>
#include <string>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>

namespace rdmabuf {

/// For GoogleTest, which would print its bytes, and looks for this name.
inline void PrintTo(const Error& error, // NOLINT(readability-identifier-naming)
                    std::ostream* out) {
    *out << error.what();
}

} // namespace rdmabuf

namespace rdmabuf::testing {

/// For what error_of() returns: an Error of that errno whose text has @p text in it.
inline auto fails_with(int error, const std::string& text) {
    return ::testing::Optional(
        ::testing::AllOf(::testing::Property("error", &Error::error, error),
                         ::testing::Property("what", &Error::what, ::testing::HasSubstr(text))));
}

/// The same, of one function.
inline auto fails_with(const std::string& function, int error, const std::string& text) {
    return ::testing::Optional(
        ::testing::AllOf(::testing::Property("function", &Error::function, function),
                         ::testing::Property("error", &Error::error, error),
                         ::testing::Property("what", &Error::what, ::testing::HasSubstr(text))));
}

} // namespace rdmabuf::testing
