// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace softverbs_test {

/// Returns @p object. Throws an exception with errno if it is null. For processes without gtest.
template <class T>
T* made(T* object, const char* what) {
    if (object == nullptr) {
        throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
    }
    return object;
}

/// Throws an exception if @p error is not 0.
inline void done(int error, const char* what) {
    if (error != 0) {
        throw std::runtime_error(std::string(what) + ": " + std::strerror(error));
    }
}

} // namespace softverbs_test
