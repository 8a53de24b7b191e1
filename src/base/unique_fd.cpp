// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf {

void UniqueFd::reset(int fd) noexcept {
    const int old = std::exchange(fd_, fd);
    // After EINTR Linux has closed the descriptor all the same: close(2), "Dealing with error
    // returns".
    if (old >= 0 && ::close(old) != 0 && errno != EINTR) {
        detail::report_teardown_failure("close", errno);
    }
}

UniqueFd UniqueFd::duplicate() const {
    UniqueFd copy(::fcntl(fd_, F_DUPFD_CLOEXEC, 0));
    detail::check_zero(copy ? 0 : errno, "fcntl");
    return copy;
}

} // namespace rdmabuf
