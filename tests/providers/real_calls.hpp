// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>

// What the linker calls the real functions behind --wrap.
extern "C" {
int __real_open(const char* path, int flags, ...);
DIR* __real_opendir(const char* path);
ssize_t __real_readlink(const char* path, char* buffer, std::size_t size);
int __real_fstat(int fd, struct stat* status);
int __real_close(int fd);
int __real_fcntl(int fd, int command, ...);
int __real_ftruncate(int fd, off_t size);
int __real_memfd_create(const char* name, unsigned flags);
void* __real_mmap(void* hint, std::size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void* start, std::size_t size);
int __real_ioctl(int fd, unsigned long request, ...);
}
