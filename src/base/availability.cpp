// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/availability.hpp>

namespace rdmabuf {

std::string to_string(const Availability& availability) {
    std::string text = availability.available ? "yes" : "no";
    if (!availability.reason.empty()) {
        text.append(": ").append(availability.reason);
    }
    if (!availability.remedy.empty()) {
        text.append("; ").append(availability.remedy);
    }
    return text;
}

} // namespace rdmabuf
