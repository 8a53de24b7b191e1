// SPDX-License-Identifier: BSD-3-Clause
#include "common/driver_result.hpp"

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

void DriverFailure::raise(const char* function, std::string_view hint) const {
    std::string text = name + ": " + std::string(hint);
    if (remedy != nullptr) {
        text.append("; ").append(remedy);
    }
    throw Error(error, function, text);
}

} // namespace rdmabuf::detail
