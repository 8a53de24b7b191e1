// SPDX-License-Identifier: BSD-3-Clause
// The linker directs the calls here, by its option --wrap.
#include "verbs_dm_calls.hpp"

#include <sys/mman.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>

namespace rdmabuf::testing {

constinit Calls calls;

} // namespace rdmabuf::testing

using rdmabuf::testing::calls;

extern "C" {
void* __real_dlvsym(void* handle, const char* name, const char* version);
void* __wrap_dlvsym(void* handle, const char* name, const char* version) {
    return calls.replaced ? calls.found : __real_dlvsym(handle, name, version);
}
void* __real_mmap(void* hint, std::size_t size, int protection, int flags, int fd, off_t offset);
void* __wrap_mmap(void* hint, std::size_t size, int protection, int flags, int fd, off_t offset) {
    if (calls.mmap_error != 0) {
        errno = calls.mmap_error;
        return MAP_FAILED;
    }
    return __real_mmap(hint, size, protection, flags, fd, offset);
}
int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void* const argument = va_arg(arguments, void*);
    va_end(arguments);
    if (calls.fcntl_error != 0) {
        errno = calls.fcntl_error;
        return -1;
    }
    return __real_fcntl(fd, command, argument);
}
}
