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

struct DriverFailure {
    /// The name and the value of the driver's result, for example "CUDA_ERROR_NOT_SUPPORTED (801)".
    std::string name;
    /// The errno value of the Error that raise() throws.
    int error;
    /// The remedy in the error text. Null if there is none that fits all functions of the driver.
    const char* remedy;

    /// Throws an Error for this failure.
    /// @param function  name of the driver's function; a string literal
    /// @param hint      text that names the failed operation and its remedy
    [[noreturn]] void raise(const char* function, std::string_view hint) const {
        std::string text = name + ": " + std::string(hint);
        if (remedy != nullptr) {
            text.append("; ").append(remedy);
        }
        throw Error(error, function, text);
    }
};

/// Reports to the teardown failure handler that @p function has failed with the errno value @p
/// error, unless @p fine contains @p result. @p fine lists the results that are not failures:
/// success, and the result of a driver that has shut down at the end of the process.
template <class Result>
void report_teardown_unless(std::initializer_list<Result> fine, Result result, int error,
                            const char* function) noexcept {
    if (std::find(fine.begin(), fine.end(), result) == fine.end()) {
        report_teardown_failure(function, error);
    }
}

/// Appends a device to the devices in Availability::reason, for example "0000:3b:00.0,
/// 0000:5e:00.0".
/// @param pci_address  empty if the driver does not report the address
inline void append_device(std::string& devices, const std::string& pci_address) {
    devices.append(devices.empty() ? "" : ", ")
        .append(pci_address.empty() ? "a device whose PCI address is unknown" : pci_address);
}

/// A result value and its name, for a driver that has no function which returns the name.
struct StatusName {
    int status;
    const char* name;
};

/// Returns the name and the value of a result, for example "NRT_INVALID (2)".
[[nodiscard]] inline std::string status_name(int status, std::span<const StatusName> names) {
    const char* name = "unknown result";
    for (const StatusName& known : names) {
        if (known.status == status) {
            name = known.name;
        }
    }
    return std::string(name) + " (" + std::to_string(status) + ")";
}

} // namespace rdmabuf::detail
