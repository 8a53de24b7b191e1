// SPDX-License-Identifier: BSD-3-Clause
#include "common/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include <rdmabuf/detail/check.hpp>
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

std::byte* reserve(std::size_t size) {
    void* const start =
        ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) {
        throw Error(errno, "mmap",
                    "addresses for " + std::to_string(size) + " bytes could not be reserved");
    }
    return static_cast<std::byte*>(start);
}

/// Has the value of MFD_NOEXEC_SEAL. Kernel headers before Linux 6.3 do not define this name.
constexpr unsigned mfd_noexec_seal = 0x8;

} // namespace

void Unmap::operator()(std::byte* start) const noexcept {
    if (::munmap(start, size) != 0) {
        report_teardown_failure("munmap", errno);
    }
}

Mapping::Mapping(int fd, std::size_t size, off_t offset)
    : start_(map(fd, size, offset), Unmap{size}) {}

ReservedAddresses::ReservedAddresses(std::size_t size) : start_(reserve(size), Unmap{size}) {}

Result<UniqueFd> open_memfd() {
    constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    // MFD_NOEXEC_SEAL is tried first, because the sysctl vm.memfd_noexec can require this flag.
    // Kernels before 6.3 fail with EINVAL if the flag is set.
    UniqueFd memfd(::memfd_create("rdmabuf", flags | mfd_noexec_seal));
    if (!memfd && errno == EINVAL) {
        memfd.reset(::memfd_create("rdmabuf", flags));
    }
    if (!memfd) {
        const int error = errno;
        return ErrorInfo{error, "memfd_create",
                         "a memfd cannot be created: " + describe_errno(error)};
    }
    return memfd;
}

UniqueFd make_memfd(std::size_t size, int seals) {
    UniqueFd memfd = open_memfd().value();
    const int truncated = ::ftruncate(memfd.get(), static_cast<off_t>(size));
    check_zero(truncated == 0 ? 0 : errno, "ftruncate");
    const int sealed = ::fcntl(memfd.get(), F_ADD_SEALS, seals);
    check_zero(sealed == 0 ? 0 : errno, "fcntl(F_ADD_SEALS)");
    return memfd;
}

} // namespace rdmabuf::detail
