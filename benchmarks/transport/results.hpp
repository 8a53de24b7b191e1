// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <system_error>
#include <utility>

#include <rdmabuf/error.hpp>

/// Returns the value of a result. @throws std::runtime_error with the message of a failed result
template <class T>
T value(rdmabuf::Result<T> result) {
    if (!result) {
        throw std::runtime_error(result.message());
    }
    return *std::move(result);
}
inline void check(std::error_code error) {
    if (error) {
        throw std::system_error(error);
    }
}
