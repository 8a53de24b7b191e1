// SPDX-License-Identifier: BSD-3-Clause
#include "common/reserved_addresses.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <string>

#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {
namespace {

std::byte* reserve(std::size_t size) {
    void* const start =
        ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) {
        throw Error(errno, "mmap",
                    "addresses for " + std::to_string(size) + " bytes could not be reserved");
    }
    return static_cast<std::byte*>(start);
}

} // namespace

void ReservedAddresses::Unmap::operator()(std::byte* start) const noexcept {
    if (::munmap(start, size) != 0) {
        report_teardown_failure("munmap", errno);
    }
}

ReservedAddresses::ReservedAddresses(std::size_t size) : start_(reserve(size), Unmap{size}) {}

} // namespace rdmabuf::detail
