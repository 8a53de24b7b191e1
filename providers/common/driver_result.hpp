// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include <rdmabuf/detail/unique_handle.hpp>

namespace rdmabuf::detail {

/// What a driver answered instead of success, as an Error tells it.
struct DriverFailure {
    /// "CUDA_ERROR_NOT_SUPPORTED (801)"
    std::string name;
    /// The errno that stands for it.
    int error;
    /// What to do about it, whatever was called; null where that depends.
    const char* remedy;

    /// @param function  the driver's; a string literal
    /// @param hint      what was asked for, and what to do
    [[noreturn]] void raise(const char* function, std::string_view hint) const;
};

/// Passes a failed teardown on, but for the results in @p fine: success, and that of a driver that
/// has gone before, at the end of the process, when there is nothing left to give back.
template <class Result>
void report_teardown_unless(std::initializer_list<Result> fine, Result result, int error,
                            const char* function) noexcept {
    if (std::find(fine.begin(), fine.end(), result) == fine.end()) {
        report_teardown_failure(function, error);
    }
}

} // namespace rdmabuf::detail
