// SPDX-License-Identifier: BSD-3-Clause
#include "objects/device_file.hpp"

#include <sys/stat.h>

namespace softverbs {

std::optional<FileIdentity> identity_of(int fd) noexcept {
    struct stat status {};
    if (::fstat(fd, &status) != 0) {
        return std::nullopt;
    }
    return FileIdentity{status.st_dev, status.st_ino};
}

} // namespace softverbs
