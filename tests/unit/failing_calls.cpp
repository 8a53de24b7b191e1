// SPDX-License-Identifier: BSD-3-Clause
#include "failing_calls.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdarg>
#include <utility>

namespace rdmabuf::testing {
namespace {

thread_local FailingCalls* current = nullptr;

} // namespace

FailingCalls::FailingCalls(std::vector<Failure> failures)
    : failures_(std::move(failures)), failed_(failures_.size()) {
    current = this;
}

FailingCalls::~FailingCalls() {
    current = nullptr;
}

int FailingCalls::enter(const char* function) {
    if (current == nullptr) {
        return 0;
    }
    for (std::size_t i = 0; i < current->failures_.size(); ++i) {
        Failure& failure = current->failures_[i];
        if (failure.nth != 0 && (failure.function.empty() || failure.function == function) &&
            --failure.nth == 0) {
            current->failed_[i] = function;
            return failure.error;
        }
    }
    return 0;
}

} // namespace rdmabuf::testing

using rdmabuf::testing::FailingCalls;

namespace {

/// What @p call returns, unless it is this call's turn to fail.
template <class Call>
auto unless_failing(const char* function, Call call) -> decltype(call()) {
    if (const int error = FailingCalls::enter(function); error != 0) {
        errno = error;
        return -1;
    }
    return call();
}

} // namespace

extern "C" {

// What the linker calls the real ones.
int __real_accept4(int fd, sockaddr* address, socklen_t* size, int flags);
int __real_bind(int fd, const sockaddr* address, socklen_t size);
int __real_connect(int fd, const sockaddr* address, socklen_t size);
int __real_fcntl(int fd, int command, ...);
int __real_getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                       addrinfo** result);
int __real_getpeername(int fd, sockaddr* address, socklen_t* size);
int __real_getsockname(int fd, sockaddr* address, socklen_t* size);
int __real_getsockopt(int fd, int level, int option, void* value, socklen_t* size);
int __real_listen(int fd, int backlog);
int __real_poll(pollfd* requests, nfds_t count, int timeout);
ssize_t __real_recv(int fd, void* buffer, std::size_t size, int flags);
ssize_t __real_send(int fd, const void* bytes, std::size_t size, int flags);
int __real_setsockopt(int fd, int level, int option, const void* value, socklen_t size);
int __real_socket(int family, int type, int protocol);

int __wrap_accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
    return unless_failing("accept4", [&] { return __real_accept4(fd, address, size, flags); });
}

int __wrap_bind(int fd, const sockaddr* address, socklen_t size) {
    return unless_failing("bind", [&] { return __real_bind(fd, address, size); });
}

int __wrap_connect(int fd, const sockaddr* address, socklen_t size) {
    const int error = FailingCalls::enter("connect");
    if (error == 0) {
        return __real_connect(fd, address, size);
    }
    if (error == EINTR) {
        // Then the connection is under way all the same: connect(2).
        static_cast<void>(__real_connect(fd, address, size));
    }
    errno = error;
    return -1;
}

int __wrap_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    // Passed on as fcntl(2) itself does it, whatever the command takes.
    void* const argument = va_arg(arguments, void*);
    va_end(arguments);
    return unless_failing("fcntl", [&] { return __real_fcntl(fd, command, argument); });
}

int __wrap_getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                       addrinfo** result) {
    if (const int error = FailingCalls::enter("getaddrinfo"); error != 0) {
        errno = error;
        return EAI_SYSTEM;
    }
    return __real_getaddrinfo(host, service, hints, result);
}

int __wrap_getpeername(int fd, sockaddr* address, socklen_t* size) {
    return unless_failing("getpeername", [&] { return __real_getpeername(fd, address, size); });
}

int __wrap_getsockname(int fd, sockaddr* address, socklen_t* size) {
    return unless_failing("getsockname", [&] { return __real_getsockname(fd, address, size); });
}

int __wrap_getsockopt(int fd, int level, int option, void* value, socklen_t* size) {
    return unless_failing("getsockopt",
                          [&] { return __real_getsockopt(fd, level, option, value, size); });
}

int __wrap_listen(int fd, int backlog) {
    return unless_failing("listen", [&] { return __real_listen(fd, backlog); });
}

int __wrap_poll(pollfd* requests, nfds_t count, int timeout) {
    return unless_failing("poll", [&] { return __real_poll(requests, count, timeout); });
}

ssize_t __wrap_recv(int fd, void* buffer, std::size_t size, int flags) {
    return unless_failing("recv", [&] { return __real_recv(fd, buffer, size, flags); });
}

ssize_t __wrap_send(int fd, const void* bytes, std::size_t size, int flags) {
    return unless_failing("send", [&] { return __real_send(fd, bytes, size, flags); });
}

int __wrap_setsockopt(int fd, int level, int option, const void* value, socklen_t size) {
    return unless_failing("setsockopt",
                          [&] { return __real_setsockopt(fd, level, option, value, size); });
}

int __wrap_socket(int family, int type, int protocol) {
    return unless_failing("socket", [&] { return __real_socket(family, type, protocol); });
}

} // extern "C"
