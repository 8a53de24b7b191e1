// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <system_error>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// Success, or an errno value: what data-path calls return instead of throwing. It is one int and
/// costs what the int of the C call costs.
class [[nodiscard]] RDMABUF_EXPORT Status {
  public:
    constexpr Status() noexcept = default;
    /// @param error 0 for success, otherwise a positive errno value.
    explicit constexpr Status(int error) noexcept : error_(error) {}

    [[nodiscard]] constexpr bool ok() const noexcept { return error_ == 0; }
    explicit constexpr operator bool() const noexcept { return ok(); }

    /// 0 on success.
    [[nodiscard]] constexpr int error() const noexcept { return error_; }
    [[nodiscard]] std::error_code code() const noexcept { return {error_, std::system_category()}; }

    /// Turns a failure into an Error naming @p function.
    void throw_if_failed(const char* function) const;

    friend constexpr bool operator==(Status, Status) noexcept = default;

  private:
    int error_ = 0;
};

} // namespace rdmabuf
