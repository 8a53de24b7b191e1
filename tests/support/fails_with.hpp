// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ostream>
#include <string>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>

namespace rdmabuf {

/// GoogleTest calls a function of this name to print an Error. Otherwise it prints the bytes.
inline void PrintTo(const Error& error, // NOLINT(readability-identifier-naming)
                    std::ostream* out) {
    *out << error.what();
}

} // namespace rdmabuf

namespace rdmabuf::testing {

/// Matches a result of error_of(): an Error with that errno value whose text contains each of
/// @p texts.
template <class... Texts>
auto fails_with(int error, const Texts&... texts) {
    return ::testing::Optional(::testing::AllOf(
        ::testing::Property("error", &Error::error, error),
        ::testing::Property("what", &Error::what, ::testing::HasSubstr(std::string(texts)))...));
}

/// Matches also the function of the Error.
template <class... Texts>
auto fails_with(const std::string& function, int error, const Texts&... texts) {
    return ::testing::Optional(::testing::AllOf(
        ::testing::Property("function", &Error::function, function),
        ::testing::Property("error", &Error::error, error),
        ::testing::Property("what", &Error::what, ::testing::HasSubstr(std::string(texts)))...));
}

} // namespace rdmabuf::testing
