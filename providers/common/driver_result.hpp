// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

/// A failed call of a driver, in the terms of an Error.
struct DriverFailure {
    /// "CUDA_ERROR_NOT_SUPPORTED (801)"
    std::string name;
    /// The errno of the Error.
    int error;
    /// The remedy for this result; null if it depends on the function called.
    const char* remedy;

    /// Throws the Error.
    /// @param function  the function of the driver; a string literal
    /// @param hint      the operation that failed, and its remedy
    [[noreturn]] void raise(const char* function, std::string_view hint) const {
        std::string text = name + ": " + std::string(hint);
        if (remedy != nullptr) {
            text.append("; ").append(remedy);
        }
        throw Error(error, function, text);
    }
};

/// Reports a failed teardown to the teardown failure handler, except for the results in @p fine:
/// success, and the result of a driver that was unloaded earlier, at the end of the process.
template <class Result>
void report_teardown_unless(std::initializer_list<Result> fine, Result result, int error,
                            const char* function) noexcept {
    if (std::find(fine.begin(), fine.end(), result) == fine.end()) {
        report_teardown_failure(function, error);
    }
}

/// The name of a result, for drivers without a function that returns it.
struct StatusName {
    int status;
    const char* name;
};

/// "NRT_INVALID (2)"
[[nodiscard]] inline std::string status_name(int status, std::span<const StatusName> names) {
    const char* name = "a result without a name";
    for (const StatusName& known : names) {
        if (known.status == status) {
            name = known.name;
        }
    }
    return std::string(name) + " (" + std::to_string(status) + ")";
}

} // namespace rdmabuf::detail
