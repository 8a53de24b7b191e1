// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Throws std::system_error.
/// @param error  an errno
/// @param what  the text of the exception, which suggests a remedy if there is one
[[noreturn]] inline void throw_error(int error, const std::string& what) {
    throw std::system_error(error, std::system_category(), what);
}

/// Takes ownership of a file descriptor that a system call has returned.
/// @param what  the kind of the file descriptor, such as "an epoll", for the text of the exception
/// @throws std::system_error  if the system call has failed
[[nodiscard]] inline UniqueFd checked(int fd, const char* what) {
    if (fd < 0) {
        throw_error(errno, std::string("softverbs cannot open ") + what);
    }
    return UniqueFd(fd);
}

} // namespace softverbs::fabric
