// SPDX-License-Identifier: BSD-3-Clause
#include "objects/device_file.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "fabric/unique_fd.hpp"

namespace softverbs {

namespace {

constexpr std::array<char, 16> magic{'s', 'o', 'f', 't', 'v', 'e', 'r', 'b',
                                     's', ' ', 'd', 'e', 'v', 'i', 'c', 'e'};

/// The contents of the memfd that make_device_descriptor() creates.
struct Contents {
    std::array<char, 16> magic;
    std::uint32_t device;
};

} // namespace

int make_device_descriptor(const Device& device) noexcept {
    fabric::UniqueFd fd(::memfd_create("softverbs-device", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) {
        return -1;
    }
    const Contents contents{magic, device.index};
    if (::pwrite(fd.get(), &contents, sizeof contents, 0) != sizeof contents) {
        errno = errno == 0 ? ENOMEM : errno;
        return -1;
    }
    ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    return fd.release();
}

std::optional<unsigned> device_of_descriptor(int fd) noexcept {
    Contents contents{};
    // First check that the file supports seals: then it is a memfd. Another kind of file must not
    // be read, because pread(2) could block or consume data.
    if (::fcntl(fd, F_GET_SEALS) < 0 ||
        ::pread(fd, &contents, sizeof contents, 0) != sizeof contents || contents.magic != magic) {
        return std::nullopt;
    }
    return contents.device;
}

std::optional<FileIdentity> identity_of(int fd) noexcept {
    struct stat status {};
    if (::fstat(fd, &status) != 0) {
        return std::nullopt;
    }
    return FileIdentity{status.st_dev, status.st_ino};
}

} // namespace softverbs
