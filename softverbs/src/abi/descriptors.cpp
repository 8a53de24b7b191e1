// SPDX-License-Identifier: BSD-3-Clause

// Wrappers of libc functions that have a file descriptor as an argument. They call the next
// definition of the function, which is that of libc or of another preloaded library. For file
// descriptors of /dev/infiniband/rdma_cm, write() executes a command instead, fstat() corrects the
// result, and the other wrappers record that the descriptor is closed or duplicated.
#include "cm/descriptors.hpp"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/next.hpp"

namespace softverbs {

namespace {

constinit Next<ssize_t(int, const void*, std::size_t)> next_write("write");
constinit Next<int(int)> next_close("close");
constinit Next<int(int)> next_dup("dup");
constinit Next<int(int, int)> next_dup2("dup2");
constinit Next<int(int, int, int)> next_dup3("dup3");
constinit Next<int(int, int, void*)> next_fcntl("fcntl");
// glibc before 2.33 exports no fstat(); programs call __fxstat() instead. With such a glibc, make
// the system call.
constinit Next<int(int, struct stat*)> next_fstat("fstat", [](int descriptor, struct stat* status) {
    return static_cast<int>(::syscall(SYS_fstat, descriptor, status));
});
constinit Next<int(unsigned, unsigned, int)> next_close_range("close_range");

/// Looks up the libc functions write() and close() at program start, because a program may call
/// them in a signal handler, where dlsym(3) is not safe.
__attribute__((constructor)) void find_next_definitions() {
    static_cast<void>(next_write.find());
    static_cast<void>(next_close.find());
}

int copied(int descriptor, int copy) noexcept {
    if (copy >= 0 && cm::may_be_device(descriptor)) {
        cm::duplicated(descriptor, copy);
    }
    return copy;
}

/// Implements dup2(2) and dup3(2).
/// @param replaced  the target file descriptor (second argument), which the system call closes
template <class Duplicate>
int duplicate_onto(int descriptor, int replaced, const Duplicate& duplicate) noexcept {
    if (cm::may_be_device(replaced) && replaced != descriptor &&
        next_fcntl(descriptor, F_GETFD, static_cast<void*>(nullptr)) >= 0) {
        cm::closing(replaced);
    }
    const int copy = duplicate();
    return copy == descriptor ? copy : copied(descriptor, copy);
}

int status_of(int descriptor, struct stat* status) noexcept {
    const int result = next_fstat(descriptor, status);
    if (result == 0 && cm::may_be_device(descriptor) && cm::is_device(descriptor)) {
        cm::describe_device(*status);
    }
    return result;
}

} // namespace

} // namespace softverbs

using namespace softverbs;

// write() and close() are not noexcept. They are cancellation points, and glibc cancels a thread
// with an exception that must pass through these functions.
SOFTVERBS_FILE ssize_t write(int descriptor, const void* buffer, std::size_t size) {
    if (cm::may_be_device(descriptor) && cm::is_device(descriptor)) {
        return cm::write_command(descriptor, buffer, size);
    }
    return next_write(descriptor, buffer, size);
}

SOFTVERBS_FILE int close(int descriptor) {
    if (cm::may_be_device(descriptor)) {
        cm::closing(descriptor);
    }
    return next_close(descriptor);
}

SOFTVERBS_FILE int dup(int descriptor) noexcept {
    return copied(descriptor, next_dup(descriptor));
}
SOFTVERBS_FILE int dup2(int descriptor, int replaced) noexcept {
    return duplicate_onto(descriptor, replaced, [&] { return next_dup2(descriptor, replaced); });
}
SOFTVERBS_FILE int dup3(int descriptor, int replaced, int flags) noexcept {
    return duplicate_onto(descriptor, replaced,
                          [&] { return next_dup3(descriptor, replaced, flags); });
}

SOFTVERBS_FILE int fcntl(int descriptor, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void* const argument = va_arg(arguments, void*);
    va_end(arguments);
    const int result = next_fcntl(descriptor, command, argument);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? copied(descriptor, result) : result;
}
SOFTVERBS_ALIAS(fcntl) int fcntl64(int descriptor, int command, ...); // the same on 64-bit machines

SOFTVERBS_FILE int close_range(unsigned first, unsigned last, int flags) noexcept {
    constexpr auto limit = static_cast<unsigned>(cm::max_descriptor);
    for (unsigned each = first; flags == 0 && each <= last && each <= limit; ++each) {
        if (cm::may_be_device(static_cast<int>(each))) {
            cm::closing(static_cast<int>(each));
        }
    }
    return next_close_range(first, last, flags);
}

SOFTVERBS_FILE int fstat(int descriptor, struct stat* status) noexcept {
    return status_of(descriptor, status);
}
static_assert(sizeof(struct stat) == sizeof(struct stat64));
SOFTVERBS_ALIAS(fstat)
int fstat64(int descriptor, struct stat64* status) noexcept;

// Programs that were built with glibc before 2.33 call these functions instead of fstat(2). The
// first argument is the version of the structure.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_FILE int __fxstat(int, int descriptor, struct stat* status) noexcept {
    return status_of(descriptor, status);
}
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_ALIAS(__fxstat)
int __fxstat64(int, int descriptor, struct stat64* status) noexcept;
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
