// SPDX-License-Identifier: BSD-3-Clause

// Wrappers of libc functions that have a path as an argument. They redirect the paths that
// abi/paths.hpp describes. For all other paths, they call the next definition of the function,
// which is that of libc or of another preloaded library. Each function needs its own wrapper,
// because calls within libc cannot be intercepted: fopen(3), for example, does not call the
// exported open().
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "abi/next.hpp"
#include "abi/paths.hpp"
#include "abi/sysfs_tree.hpp"

namespace softverbs {

namespace {

/// Returns whether the descriptor @p directory refers to "/". hwloc opens "sys/class/infiniband"
/// relative to a descriptor of "/".
bool is_root(int directory) noexcept {
    struct stat of_directory {};
    struct stat of_root {};
    const int saved_errno = errno;
    const bool same = ::syscall(SYS_newfstatat, directory, "", &of_directory, AT_EMPTY_PATH) == 0 &&
                      ::syscall(SYS_newfstatat, AT_FDCWD, "/", &of_root, 0) == 0 &&
                      of_directory.st_ino == of_root.st_ino &&
                      of_directory.st_dev == of_root.st_dev;
    errno = saved_errno;
    return same;
}

bool may_be_served_at(int directory, const char* path) noexcept {
    return directory != AT_FDCWD && path != nullptr &&
           (std::strncmp(path, "sys/", 4) == 0 || std::strncmp(path, "dev/infiniband", 14) == 0) &&
           is_root(directory);
}

/// Calls @p function with the result of redirect(), which contains the path to open instead of @p
/// path.
template <class Function>
__attribute__((noinline)) auto call_redirected(const char* path, const Function& function) {
    PathBuffer target;
    return function(redirect(path, target));
}

/// Calls @p function with the result of redirect() for a @p path that is relative to "/", such as
/// "sys/class/infiniband".
template <class Function>
__attribute__((noinline)) auto call_redirected_below_root(const char* path,
                                                          const Function& function) {
    PathBuffer absolute;
    const int length = std::snprintf(absolute, sizeof absolute, "/%s", path);
    if (length < 0 || static_cast<std::size_t>(length) >= sizeof absolute) {
        return function(Redirection{path, nullptr});
    }
    PathBuffer target;
    const Redirection found = redirect(absolute, target);
    return function(found.path == absolute ? Redirection{path, found.open} : found);
}

template <class Function>
auto with_path(const char* path, const Function& function) {
    return may_be_served(path) ? call_redirected(path, function)
                               : function(Redirection{path, nullptr});
}

template <class Function>
auto with_path_at(int directory, const char* path, const Function& function) {
    return may_be_served_at(directory, path) ? call_redirected_below_root(path, function)
                                             : with_path(path, function);
}

/// Calls @p next, the next definition of a function whose first argument is a path, with the
/// redirected path.
template <class Function, class... Arguments>
auto redirected(Next<Function>& next, const char* path, Arguments... arguments) {
    return with_path(path, [&](const Redirection& to) { return next(to.path, arguments...); });
}

/// The same for a function whose first two arguments are the descriptor of a directory and a path.
template <class Function, class... Arguments>
auto redirected_at(Next<Function>& next, int directory, const char* path, Arguments... arguments) {
    return with_path_at(directory, path, [&](const Redirection& to) {
        return next(directory, to.path, arguments...);
    });
}

/// Opens the file to which a path was redirected. Calls the function Redirection::open if it is
/// set; otherwise, calls @p open with the new path.
template <class Open>
int open_redirected(const Redirection& to, int flags, const Open& open) {
    return to.open != nullptr ? to.open(to.path, flags) : open(to.path);
}

/// Returns whether a call of open(2) with these flags has a third argument, the file mode.
bool takes_mode(int flags) noexcept {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

FILE* open_stream(const Redirection& to, const char* mode,
                  FILE* (*open)(const char*, const char*)) {
    if (to.open == nullptr) {
        return open(to.path, mode);
    }
    const bool update = std::strchr(mode, '+') != nullptr;
    const int access = update ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;
    const int fd = to.open(to.path, access | (std::strchr(mode, 'e') != nullptr ? O_CLOEXEC : 0));
    if (fd < 0) {
        return nullptr;
    }
    FILE* const stream = ::fdopen(fd, mode);
    if (stream == nullptr) {
        const int error = errno;
        ::close(fd);
        errno = error;
    }
    return stream;
}

constinit Next<int(const char*, int, mode_t)> next_open("open");
constinit Next<int(int, const char*, int, mode_t)> next_openat("openat");
constinit Next<FILE*(const char*, const char*)> next_fopen("fopen");
constinit Next<DIR*(const char*)> next_opendir("opendir");
constinit Next<ssize_t(const char*, char*, std::size_t)> next_readlink("readlink");
constinit Next<ssize_t(int, const char*, char*, std::size_t)> next_readlinkat("readlinkat");
constinit Next<char*(const char*, char*)> next_realpath("realpath");
constinit Next<int(const char*, struct dirent***, int (*)(const struct dirent*),
                   int (*)(const struct dirent**, const struct dirent**))>
    next_scandir("scandir");
constinit Next<int(const char*, int)> next_access("access");
constinit Next<int(int, const char*, int, int)> next_faccessat("faccessat");
// glibc before 2.33 exports no fstatat(); programs call __fxstatat() instead. With such a glibc,
// make the system call.
constinit Next<int(int, const char*, struct stat*, int)> next_fstatat(
    "fstatat", [](int directory, const char* path, struct stat* status, int flags) {
        return static_cast<int>(::syscall(SYS_newfstatat, directory, path, status, flags));
    });
constinit Next<int(int, const char*, int, unsigned, struct statx*)> next_statx("statx");

/// Implements stat(2), lstat(2) and fstatat(2). libc also implements the first two with fstatat(2).
int status_of(int directory, const char* path, struct stat* status, int flags) {
    return redirected_at(next_fstatat, directory, path, status, flags);
}

} // namespace

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_FILE int open(const char* path, int flags, ...) {
    mode_t mode = 0;
    if (takes_mode(flags)) {
        va_list arguments;
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    return with_path(path, [&](const Redirection& to) {
        return open_redirected(to, flags,
                               [&](const char* file) { return next_open(file, flags, mode); });
    });
}

SOFTVERBS_FILE int openat(int directory, const char* path, int flags, ...) {
    mode_t mode = 0;
    if (takes_mode(flags)) {
        va_list arguments;
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    return with_path_at(directory, path, [&](const Redirection& to) {
        return open_redirected(
            to, flags, [&](const char* file) { return next_openat(directory, file, flags, mode); });
    });
}

// On 64-bit machines, the functions for large files are the same.
SOFTVERBS_ALIAS(open) int open64(const char* path, int flags, ...);
SOFTVERBS_ALIAS(openat) int openat64(int directory, const char* path, int flags, ...);

// With _FORTIFY_SOURCE, the compiler calls these functions instead of open(2) and openat(2) if the
// call has no mode argument.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_FILE int __open_2(const char* path, int flags) {
    return ::open(path, flags);
}
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_ALIAS(__open_2) int __open64_2(const char* path, int flags);
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_FILE int __openat_2(int directory, const char* path, int flags) {
    return ::openat(directory, path, flags);
}
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_ALIAS(__openat_2) int __openat64_2(int directory, const char* path, int flags);

SOFTVERBS_FILE FILE* fopen(const char* path, const char* mode) {
    return with_path(path, [&](const Redirection& to) {
        return open_stream(to, mode,
                           [](const char* file, const char* how) { return next_fopen(file, how); });
    });
}

SOFTVERBS_ALIAS(fopen) FILE* fopen64(const char* path, const char* mode);

SOFTVERBS_FILE DIR* opendir(const char* path) {
    return redirected(next_opendir, path);
}

SOFTVERBS_FILE ssize_t readlink(const char* path, char* target, std::size_t size) noexcept {
    return redirected(next_readlink, path, target, size);
}

SOFTVERBS_FILE ssize_t readlinkat(int directory, const char* path, char* target,
                                  std::size_t size) noexcept {
    return redirected_at(next_readlinkat, directory, path, target, size);
}

// With _FORTIFY_SOURCE, the compiler calls these functions instead of readlink(2) and similar
// functions. They must end the program if the buffer is too small.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_FILE ssize_t __readlink_chk(const char* path, char* target, std::size_t size,
                                      std::size_t buffer) noexcept {
    return size <= buffer ? ::readlink(path, target, size) : (::abort(), -1);
}
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_FILE ssize_t __readlinkat_chk(int directory, const char* path, char* target,
                                        std::size_t size, std::size_t buffer) noexcept {
    return size <= buffer ? ::readlinkat(directory, path, target, size) : (::abort(), -1);
}

SOFTVERBS_FILE char* realpath(const char* path, char* resolved) noexcept {
    // If the program passes no buffer, allocate one here. The program frees it with free(3). Before
    // 2.36, glibc's dlsym(RTLD_NEXT) finds the oldest version of realpath(), which cannot allocate.
    // NOLINTNEXTLINE(cppcoreguidelines-no-malloc)
    char* const buffer = resolved != nullptr ? resolved : static_cast<char*>(::malloc(PATH_MAX));
    if (buffer == nullptr) {
        return nullptr;
    }
    char* const result = with_path(path, [&](const Redirection& to) {
        char* const found = next_realpath(to.path, buffer);
        if (found != nullptr && to.path != path) {
            sysfs::restore(found);
        }
        return found;
    });
    if (result == nullptr && resolved == nullptr) {
        const int saved_errno = errno;
        ::free(buffer); // NOLINT(cppcoreguidelines-no-malloc)
        errno = saved_errno;
    }
    return result;
}
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_FILE char* __realpath_chk(const char* path, char* resolved, std::size_t buffer) noexcept {
    return buffer >= PATH_MAX ? ::realpath(path, resolved) : (::abort(), nullptr);
}
SOFTVERBS_FILE char* canonicalize_file_name(const char* path) noexcept {
    return ::realpath(path, nullptr);
}

using Filter = int (*)(const struct dirent*);
using Order = int (*)(const struct dirent**, const struct dirent**);
SOFTVERBS_FILE int scandir(const char* path, struct dirent*** list, Filter filter, Order order) {
    return redirected(next_scandir, path, list, filter, order);
}
SOFTVERBS_ALIAS(scandir)
int scandir64(const char* path, struct dirent64*** list, int (*filter)(const struct dirent64*),
              int (*order)(const struct dirent64**, const struct dirent64**));

SOFTVERBS_FILE int access(const char* path, int mode) noexcept {
    return redirected(next_access, path, mode);
}

SOFTVERBS_FILE int faccessat(int directory, const char* path, int mode, int flags) noexcept {
    return redirected_at(next_faccessat, directory, path, mode, flags);
}

SOFTVERBS_FILE int stat(const char* path, struct stat* status) noexcept {
    return status_of(AT_FDCWD, path, status, 0);
}
SOFTVERBS_FILE int lstat(const char* path, struct stat* status) noexcept {
    return status_of(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
SOFTVERBS_FILE int fstatat(int directory, const char* path, struct stat* status,
                           int flags) noexcept {
    return status_of(directory, path, status, flags);
}

// struct stat and struct stat64 are the same on 64-bit machines.
static_assert(sizeof(struct stat) == sizeof(struct stat64));
SOFTVERBS_ALIAS(stat) int stat64(const char* path, struct stat64* status) noexcept;
SOFTVERBS_ALIAS(lstat) int lstat64(const char* path, struct stat64* status) noexcept;
SOFTVERBS_ALIAS(fstatat)
int fstatat64(int directory, const char* path, struct stat64* status, int flags) noexcept;

// Programs that were built with glibc before 2.33 call these functions instead of stat(2) and
// similar functions. The first argument is the version of the structure.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_FILE int __xstat(int, const char* path, struct stat* status) noexcept {
    return status_of(AT_FDCWD, path, status, 0);
}
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_FILE int __lxstat(int, const char* path, struct stat* status) noexcept {
    return status_of(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_ALIAS(__xstat)
int __xstat64(int, const char* path, struct stat64* status) noexcept;
SOFTVERBS_ALIAS(__lxstat)
int __lxstat64(int, const char* path, struct stat64* status) noexcept;
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_FILE int __fxstatat(int, int directory, const char* path, struct stat* status,
                              int flags) noexcept {
    return status_of(directory, path, status, flags);
}
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
SOFTVERBS_ALIAS(__fxstatat)
int __fxstatat64(int, int directory, const char* path, struct stat64* status, int flags) noexcept;
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

SOFTVERBS_FILE int statx(int directory, const char* path, int flags, unsigned mask,
                         struct statx* status) noexcept {
    return redirected_at(next_statx, directory, path, flags, mask, status);
}
