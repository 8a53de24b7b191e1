// SPDX-License-Identifier: BSD-3-Clause
#include "base/address_space.hpp"

#include <link.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

std::size_t page_size() noexcept {
    static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return size;
}

std::size_t round_up_to_pages(std::size_t size) {
    // Linux maps no range that is larger than PTRDIFF_MAX. With this limit, every size also fits
    // into off_t.
    const std::size_t largest = static_cast<std::size_t>(PTRDIFF_MAX) / page_size() * page_size();
    if (size > largest) {
        throw Error(ENOMEM, "mmap",
                    std::to_string(size) + " bytes were requested; an address space has at most " +
                        std::to_string(largest));
    }
    return (size + page_size() - 1) / page_size() * page_size();
}

unsigned long long loaded_objects() noexcept {
    unsigned long long count = 0;
    // dl_iterate_phdr(3) calls `read` for each loaded object. The member dlpi_adds has the same
    // value in each of these calls, so `read` returns 1 to stop after the first object.
    const auto read = [](dl_phdr_info* object, std::size_t /*size*/, void* data) {
        *static_cast<unsigned long long*>(data) = object->dlpi_adds;
        return 1;
    };
    ::dl_iterate_phdr(read, &count);
    return count;
}

bool is_loaded_code(std::uintptr_t address) noexcept {
    const auto holds = [](dl_phdr_info* object, std::size_t /*size*/, void* data) {
        const std::uintptr_t wanted = *static_cast<const std::uintptr_t*>(data);
        for (std::size_t i = 0; i < object->dlpi_phnum; ++i) {
            const auto& segment = object->dlpi_phdr[i];
            const bool code = segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0;
            if (code && wanted - (object->dlpi_addr + segment.p_vaddr) < segment.p_memsz) {
                return 1;
            }
        }
        return 0;
    };
    return ::dl_iterate_phdr(holds, &address) != 0;
}

} // namespace rdmabuf::detail
