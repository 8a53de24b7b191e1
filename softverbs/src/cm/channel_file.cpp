// SPDX-License-Identifier: BSD-3-Clause
#include "cm/channel_file.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace softverbs::cm {

int ChannelFile::open(int flags) {
    std::array<int, 2> ends{-1, -1};
    const int type = SOCK_STREAM | ((flags & O_NONBLOCK) != 0 ? SOCK_NONBLOCK : 0);
    if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        return errno;
    }
    fabric::UniqueFd programs_end(ends[0]);
    signal_end.reset(ends[1]);
    struct stat status {};
    if (::fstat(programs_end.get(), &status) != 0 ||
        ((flags & O_CLOEXEC) == 0 && ::fcntl(programs_end.get(), F_SETFD, 0) != 0)) {
        return errno;
    }
    device = status.st_dev;
    inode = status.st_ino;
    descriptors.push_back(programs_end.get());
    static_cast<void>(programs_end.release());
    return 0;
}

bool ChannelFile::signal() const noexcept {
    const char byte = 0;
    return ::send(signal_end.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

void ChannelFile::push(const Event& event) {
    events.push_back(event);
    if (unsignalled > 0 || !signal()) {
        ++unsignalled;
    }
}

void ChannelFile::push_front(const Event& event) {
    events.push_front(event);
    if (!signal()) {
        ++unsignalled;
    }
}

bool ChannelFile::pop(Event& event) {
    if (events.empty()) {
        return false;
    }
    event = events.front();
    events.pop_front();
    while (unsignalled > 0 && signal()) {
        --unsignalled;
    }
    return true;
}

bool ChannelFile::is_referred_to_by(int descriptor) const noexcept {
    struct stat status {};
    return ::syscall(SYS_fstat, descriptor, &status) == 0 && status.st_ino == inode &&
           status.st_dev == device;
}

void ChannelFile::remove(const std::function<bool(const Event&)>& chosen) {
    std::size_t removed = std::erase_if(events, chosen);
    for (; removed > 0 && unsignalled > 0; --removed) {
        --unsignalled;
    }
    // The variable "removed" is now the number of removed events for which a byte was written to
    // the socket. Read these bytes. If a byte is missing, another thread that handles the command
    // GET_EVENT has read it: that thread finds no event, and waits again.
    const auto valid =
        std::ranges::find_if(descriptors, [this](int fd) { return is_referred_to_by(fd); });
    char byte = 0;
    while (removed > 0 && valid != descriptors.end() &&
           ::recv(*valid, &byte, 1, MSG_DONTWAIT) == 1) {
        --removed;
    }
}

} // namespace softverbs::cm
