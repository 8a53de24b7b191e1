// SPDX-License-Identifier: BSD-3-Clause
#include "common/extent.hpp"

#include <cerrno>
#include <string>

#include <rdmabuf/detail/hexadecimal.hpp>

namespace rdmabuf::detail {

Error leaves(const Extent& extent, std::uintptr_t address, std::size_t length,
             std::string_view why) {
    return {ERANGE, "export_range",
            std::to_string(length) + " bytes at offset " + std::to_string(address - extent.base) +
                " leave the buffer of " + std::to_string(extent.length) + " bytes at " +
                hexadecimal(extent.base) + std::string(why)};
}

} // namespace rdmabuf::detail
