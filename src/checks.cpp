// SPDX-License-Identifier: BSD-3-Clause
#include "checks.hpp"

#include <cerrno>
#include <string>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

void check_access(Access access, Access allowed, const char* function, const char* what) {
    if (const Access extra = access & ~allowed; extra != Access::local_read) {
        throw Error(EINVAL, function,
                    std::string(what) + " cannot be registered with " + to_string(extra) +
                        "; allowed are " + to_string(allowed));
    }
    if (has_any(access, Access::remote_write | Access::remote_atomic) &&
        !has(access, Access::local_write)) {
        throw Error(
            EINVAL, function,
            to_string(access & (Access::remote_write | Access::remote_atomic)) +
                " needs local_write too: the kernel lets nobody write what the owner may not");
    }
}

void check_inside(std::uint64_t offset, std::uint64_t length, std::uint64_t size,
                  const char* function, const char* what) {
    if (offset > size || length > size - offset) {
        throw Error(ERANGE, function,
                    std::to_string(length) + " bytes at offset " + std::to_string(offset) +
                        " do not lie inside " + what + " of " + std::to_string(size) + " bytes");
    }
}

} // namespace rdmabuf::detail
