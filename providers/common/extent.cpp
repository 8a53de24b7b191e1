// SPDX-License-Identifier: BSD-3-Clause
#include "common/extent.hpp"

#include <cerrno>
#include <limits>
#include <string>

#include "base/text.hpp"

namespace rdmabuf::detail {

Error leaves(const Extent& extent, std::uintptr_t address, std::size_t length,
             std::string_view why) {
    return {ERANGE, "export_range",
            std::to_string(length) + " bytes at offset " + std::to_string(address - extent.base) +
                " leave the buffer of " + std::to_string(extent.length) + " bytes at " +
                hexadecimal(extent.base) + std::string(why)};
}

void check_added(std::uintptr_t address, std::size_t length, const std::string& described) {
    constexpr const char* function = "add";
    if (length == 0) {
        throw Error(EINVAL, function, "a range of 0 bytes cannot be added");
    }
    if (address == 0) {
        throw Error(
            EINVAL, function,
            described + ": address 0 stands for an unknown address; give the memory another");
    }
    if (length > std::numeric_limits<std::uintptr_t>::max() - address) {
        throw Error(EINVAL, function, described + ": the end is past what 64 bits can tell");
    }
}

} // namespace rdmabuf::detail
