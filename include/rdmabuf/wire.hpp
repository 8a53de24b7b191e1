// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>

#include <rdmabuf/detail/check.hpp>

namespace rdmabuf {

/// What came of reading a wire form: a value, or why there is none.
template <class T>
class [[nodiscard]] Decoded {
  public:
    /* implicit */ Decoded(T value) noexcept : value_(std::move(value)) {}
    /// @param error   a positive errno value
    /// @param reason  a string literal
    Decoded(int error, const char* reason) noexcept : error_(error), reason_(reason) {}

    explicit operator bool() const noexcept { return value_.has_value(); }
    [[nodiscard]] const T& operator*() const noexcept { return *value_; }
    [[nodiscard]] const T* operator->() const noexcept { return &*value_; }

    /// 0 when there is a value.
    [[nodiscard]] int error() const noexcept { return error_; }
    /// Empty when there is a value.
    [[nodiscard]] const char* reason() const noexcept { return reason_; }

    /// The value. @throws Error with error() and reason() when there is none.
    [[nodiscard]] const T& value() const {
        if (!value_) {
            detail::raise(error_, "decode", reason_);
        }
        return *value_;
    }

  private:
    std::optional<T> value_;
    int error_ = 0;
    const char* reason_ = "";
};

} // namespace rdmabuf
