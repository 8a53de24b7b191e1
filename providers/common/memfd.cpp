// SPDX-License-Identifier: BSD-3-Clause
#include "common/memfd.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {
namespace {

/// MFD_NOEXEC_SEAL of linux/memfd.h, Linux 6.3: younger than the headers this is built with may be.
constexpr unsigned mfd_noexec_seal = 0x8;

} // namespace

OrRefusal<UniqueFd> open_memfd() {
    constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    // A system may demand that memfds say they are not executable (sysctl vm.memfd_noexec); kernels
    // before 6.3 do not know how to.
    UniqueFd memfd(::memfd_create("rdmabuf", flags | mfd_noexec_seal));
    if (!memfd && errno == EINVAL) {
        memfd.reset(::memfd_create("rdmabuf", flags));
    }
    if (!memfd) {
        const int error = errno;
        return Refusal{error, "memfd_create",
                       Availability::no("no file in memory can be made: " + describe_errno(error))};
    }
    return memfd;
}

UniqueFd make_memfd(std::size_t size, int seals) {
    UniqueFd memfd = value_or_raise(open_memfd());
    const int truncated = ::ftruncate(memfd.get(), static_cast<off_t>(size));
    check_zero(truncated == 0 ? 0 : errno, "ftruncate");
    const int sealed = ::fcntl(memfd.get(), F_ADD_SEALS, seals);
    check_zero(sealed == 0 ? 0 : errno, "fcntl(F_ADD_SEALS)");
    return memfd;
}

} // namespace rdmabuf::detail
