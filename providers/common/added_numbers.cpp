// SPDX-License-Identifier: BSD-3-Clause
#include "common/added_numbers.hpp"

#include <cerrno>
#include <limits>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

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
