// SPDX-License-Identifier: BSD-3-Clause
#include "memory/checks.hpp"

#include <cerrno>
#include <limits>
#include <string>

#include <rdmabuf/detail/check.hpp>

#include "base/address_space.hpp"

namespace rdmabuf::detail {
namespace {

/// @param what  the kind of @p start for the error text: "address" or "offset"
[[noreturn]] void raise_page_offsets(std::uint64_t iova, const char* what, std::uint64_t start,
                                     std::uint64_t page, const char* function) {
    throw Error(EINVAL, function,
                "the iova lies " + std::to_string(iova % page) + " bytes into its page and the " +
                    what + " " + std::to_string(start % page) +
                    " bytes into its page; both must be equal (a page has " + std::to_string(page) +
                    " bytes): choose another iova, or correct the " + what);
}

} // namespace

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
                " needs local_write too: the kernel requires local write access for remote writes");
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

void check_host_region(const void* address, std::size_t length, std::uint64_t iova, Access access,
                       const char* function) {
    // These bits are IBV_ACCESS_OPTIONAL_RANGE. The kernel ignores unknown access flags in this
    // range.
    constexpr auto optional = static_cast<Access>(0x3ff00000U);
    constexpr Access known = full_access | Access::memory_window_bind | Access::zero_based |
                             Access::on_demand | Access::hugetlb | Access::flush_global |
                             Access::flush_persistent | optional;
    check_access(access, known, function, "host memory");
    if (length == 0) {
        throw Error(EINVAL, function, "a length of 0: there is nothing to register");
    }
    const auto page = std::uint64_t{page_size()};
    const auto start = std::uint64_t{reinterpret_cast<std::uintptr_t>(address)};
    if (iova % page == start % page) {
        return;
    }
    if (has(access, Access::zero_based)) {
        throw Error(EINVAL, function,
                    "zero_based needs an address at the beginning of a page, and this address "
                    "lies " +
                        std::to_string(start % page) + " bytes into its page (a page has " +
                        std::to_string(page) + " bytes): register from the beginning of the page");
    }
    raise_page_offsets(iova, "address", start, page, function);
}

void check_dmabuf(const DmaBufRange& range, std::uint64_t iova, Access access,
                  const char* function) {
    check_access(access, full_access | Access::relaxed_ordering, function, "a dma-buf");
    if (range.length == 0) {
        throw Error(EINVAL, function, "a length of 0: there is nothing to register");
    }
    if (range.length > std::numeric_limits<std::uint64_t>::max() - range.offset) {
        throw Error(EINVAL, function,
                    "offset " + std::to_string(range.offset) + " + length " +
                        std::to_string(range.length) + " overflows 64 bits");
    }
    // The kernel compares the page offset of the iova with the page offset of the dma-buf offset.
    // The page size is that of the running kernel.
    const auto page = std::uint64_t{page_size()};
    if (iova % page != range.offset % page) {
        raise_page_offsets(iova, "offset", range.offset, page, function);
    }
}

} // namespace rdmabuf::detail
