// SPDX-License-Identifier: BSD-3-Clause
#include "common/reserved_addresses.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <string>

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

ReservedAddresses::ReservedAddresses(std::size_t size) : start_(reserve(size), Unmap{size}) {}

} // namespace rdmabuf::detail
