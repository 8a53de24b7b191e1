// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <system_error>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// The result of a function on the data path, which does not throw: success or an errno value. A
/// Status is one int, and costs no more than the int that the C function returns.
class [[nodiscard]] RDMABUF_EXPORT Status {
  public:
    constexpr Status() noexcept = default;
    /// Creates a Status from @p error, which is 0 for success or a positive errno value.
    explicit constexpr Status(int error) noexcept : error_(error) {}

    [[nodiscard]] constexpr bool ok() const noexcept { return error_ == 0; }
    explicit constexpr operator bool() const noexcept { return ok(); }

    /// Returns the errno value; 0 for success.
    [[nodiscard]] constexpr int error() const noexcept { return error_; }
    [[nodiscard]] std::error_code code() const noexcept { return {error_, std::system_category()}; }

    /// Throws an Error with the errno value and the function name @p function, unless the Status is
    /// success. The hint of EIO from a verbs function says that the device may have been reset.
    void throw_if_failed(const char* function) const;

    friend constexpr bool operator==(Status, Status) noexcept = default;

  private:
    int error_ = 0;
};

} // namespace rdmabuf
