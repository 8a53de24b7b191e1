// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/spare_descriptor.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>

#include "fabric/report.hpp"
#include "fabric/system_error.hpp"

namespace softverbs::fabric {
namespace {

UniqueFd open_spare() noexcept {
    return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

} // namespace

void report_descriptor_limit() noexcept {
    report(
        "another process cannot connect to this process, which has reached its limit of open "
        "files; raise ulimit -n");
}

SpareDescriptor::SpareDescriptor() : fd_(open_spare()) {
    if (!fd_) {
        throw_error(errno, "softverbs cannot open /dev/null");
    }
}

bool SpareDescriptor::reject(int listener) noexcept {
    if (errno == ECONNABORTED || errno == EINTR) {
        return true;
    }
    if (errno != EMFILE && errno != ENFILE) {
        return false;
    }
    if (!fd_) {
        // There is no spare file descriptor, because an earlier call closed it and another thread
        // then took the last free one. Try to open a new one for the next call.
        fd_ = open_spare();
        return false;
    }
    fd_.reset();
    UniqueFd refused(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    const bool done = static_cast<bool>(refused);
    refused.reset();
    fd_ = open_spare();
    if (done) {
        report_descriptor_limit();
    }
    return done;
}

} // namespace softverbs::fabric
