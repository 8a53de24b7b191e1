// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>

#include <cstdarg>

#include "fake_kernel.hpp"
#include "real_calls.hpp"

using rdmabuf::testing::FakeKernel;

// Where --wrap sends the calls: to the fake kernel while there is one.
extern "C" {

int __wrap_open(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    auto* const fake = FakeKernel::current();
    return fake != nullptr ? fake->do_open(path, flags, mode) : __real_open(path, flags, mode);
}

DIR* __wrap_opendir(const char* path) {
    auto* const fake = FakeKernel::current();
    return fake != nullptr ? static_cast<DIR*>(fake->do_opendir(path)) : __real_opendir(path);
}

ssize_t __wrap_readlink(const char* path, char* buffer, std::size_t size) {
    auto* const fake = FakeKernel::current();
    return fake != nullptr ? fake->do_readlink(path, buffer, size)
                           : __real_readlink(path, buffer, size);
}

int __wrap_fstat(int fd, struct stat* status) {
    auto* const fake = FakeKernel::current();
    return fake != nullptr ? fake->do_fstat(fd, status) : __real_fstat(fd, status);
}

int __wrap_close(int fd) {
    auto* const fake = FakeKernel::current();
    return fake != nullptr ? fake->do_close(fd) : __real_close(fd);
}

int __wrap_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    // Commands without an argument, or with a pointer, are passed on as fcntl(2) itself does it.
    void* const argument = va_arg(arguments, void*);
    va_end(arguments);
    const auto number = static_cast<int>(reinterpret_cast<std::intptr_t>(argument));
    auto* const fake = FakeKernel::current();
    if (fake != nullptr && (command == F_DUPFD_CLOEXEC || command == F_DUPFD)) {
        return fake->do_duplicate(fd, command, number);
    }
    if (fake != nullptr && command == F_ADD_SEALS) {
        return fake->do_add_seals(fd, number);
    }
    return __real_fcntl(fd, command, argument);
}

int __wrap_ftruncate(int fd, off_t size) {
    auto* const fake = FakeKernel::current();
    return fake != nullptr ? fake->do_ftruncate(fd, size) : __real_ftruncate(fd, size);
}

int __wrap_memfd_create(const char* name, unsigned flags) {
    auto* const fake = FakeKernel::current();
    return fake != nullptr ? fake->do_memfd_create(name, flags) : __real_memfd_create(name, flags);
}

void* __wrap_mmap(void* hint, std::size_t size, int protection, int flags, int fd, off_t offset) {
    auto* const fake = FakeKernel::current();
    return fake != nullptr ? fake->do_mmap(hint, size, protection, flags, fd, offset)
                           : __real_mmap(hint, size, protection, flags, fd, offset);
}

int __wrap_munmap(void* start, std::size_t size) {
    auto* const fake = FakeKernel::current();
    return fake != nullptr ? fake->do_munmap(start, size) : __real_munmap(start, size);
}

int __wrap_ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void* const argument = va_arg(arguments, void*);
    va_end(arguments);
    auto* const fake = FakeKernel::current();
    return fake != nullptr ? fake->do_ioctl(fd, request, argument)
                           : __real_ioctl(fd, request, argument);
}

} // extern "C"
