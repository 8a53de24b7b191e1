// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>

namespace rdmabuf::detail {

/// What a driver calls a result, for drivers that do not tell themselves.
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
