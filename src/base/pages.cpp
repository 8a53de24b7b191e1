// SPDX-License-Identifier: BSD-3-Clause
#include "base/pages.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

std::size_t page_size() noexcept {
    static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return size;
}

std::size_t round_up_to_pages(std::size_t size) {
    // PTRDIFF_MAX rather than SIZE_MAX: nothing larger can be mapped, and sizes then fit into
    // off_t.
    const std::size_t largest = static_cast<std::size_t>(PTRDIFF_MAX) / page_size() * page_size();
    if (size > largest) {
        throw Error(ENOMEM, "mmap",
                    std::to_string(size) +
                        " bytes were asked for; an address space holds at most " +
                        std::to_string(largest));
    }
    return (size + page_size() - 1) / page_size() * page_size();
}

} // namespace rdmabuf::detail
