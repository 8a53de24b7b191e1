// SPDX-License-Identifier: BSD-3-Clause
#include "common/mapping.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <string>

#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {
namespace {

std::byte* map(int fd, std::size_t size, off_t offset) {
    void* const start = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    if (start == MAP_FAILED) {
        throw Error(errno, "mmap", std::to_string(size) + " bytes could not be mapped for the CPU");
    }
    return static_cast<std::byte*>(start);
}

} // namespace

void Unmap::operator()(std::byte* start) const noexcept {
    if (::munmap(start, size) != 0) {
        report_teardown_failure("munmap", errno);
    }
}

Mapping::Mapping(int fd, std::size_t size, off_t offset)
    : start_(map(fd, size, offset), Unmap{size}) {}

} // namespace rdmabuf::detail
