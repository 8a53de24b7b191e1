// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <limits.h>

#include <cstring>
#include <string_view>

namespace softverbs {

/// A null-terminated path.
using PathBuffer = char[PATH_MAX];

/// An entry of the table in paths.cpp. It describes files below /dev or /sys that softverbs
/// provides instead of the kernel. Both functions are called without Process::lock, from any
/// thread, and may set errno.
struct ServedPath {
    /// An absolute path prefix. translate() and open() are called for every path that begins with
    /// it.
    std::string_view prefix;
    /// Stores in @p target the path that is opened instead of @p path. Returns false if the
    /// kernel's file must be used. The pointer is null if only open(2) is redirected.
    bool (*translate)(std::string_view path, PathBuffer& target);
    /// Opens the file. Returns a descriptor, or -1 and sets errno. The pointer is null if the
    /// translated path is opened with open(2).
    int (*open)(std::string_view path, int flags);
};

/// The result of redirect(): the file that is opened instead of a path.
struct Redirection {
    /// The original path, or the translated path in the caller's buffer.
    const char* path;
    /// Opens the file. If the pointer is null, the caller opens path with open(2).
    int (*open)(std::string_view path, int flags);
};

/// Returns whether softverbs may redirect a path. The function is inline because every path that
/// the program opens is checked.
[[nodiscard]] inline bool may_be_served(const char* path) noexcept {
    return path != nullptr && path[0] == '/' && (path[1] == 's' || path[1] == 'd') &&
           (std::strncmp(path, "/sys/", 5) == 0 || std::strncmp(path, "/dev/infiniband", 15) == 0);
}

/// Looks up a path in the table of ServedPath entries. Preserves errno.
[[nodiscard]] Redirection redirect(const char* path, PathBuffer& target);

/// While an object of this class exists, paths of the calling thread are not redirected.
class KernelPaths {
  public:
    KernelPaths() noexcept;
    ~KernelPaths();
    KernelPaths(const KernelPaths&) = delete;
    KernelPaths& operator=(const KernelPaths&) = delete;
};

} // namespace softverbs
